"""Without the `[serve]` extra the doctests of the modules that need it are left out."""

from __future__ import annotations

import importlib.util

SERVER = ("app", "libretranslate", "openai", "server", "service")
collect_ignore = (
    []
    if all(map(importlib.util.find_spec, ("starlette", "uvicorn")))
    else [f"pellucid/serve/{name}.py" for name in SERVER]
)
