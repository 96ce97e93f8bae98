"""Without the `[serve]` extra and its clients, the server's tests are left out."""

from __future__ import annotations

import importlib.util

collect_ignore = (
    []
    if all(map(importlib.util.find_spec, ("httptools", "starlette", "uvicorn")))
    else [
        "test_app.py",
        "test_clients.py",
        "test_faults.py",
        "test_page.py",
        "test_reload.py",
        "test_stop.py",
        "test_view.py",
    ]
)
