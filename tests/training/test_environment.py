from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits

from pellucid.training.environment import changes, environment


def test_the_thread_count_is_seen() -> None:
    with threadpool_limits(1, user_api="blas"):
        one = environment()
    assert one["blas threads"] == "1"
    assert changes(one, environment() | {"blas threads": "1"}) == []
    assert changes(one, one | {"blas threads": "3"}) == ["blas threads: 1 -> 3"]


def test_switching_the_kernels_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_KERNELS", raising=False)
    on = environment()
    monkeypatch.setenv("PELLUCID_KERNELS", "off")
    assert changes(on, environment()) == ["kernels: on -> off"]
