"""How a kernel is compiled where the compiled code has nowhere to lie."""

from __future__ import annotations

import logging

import pytest
from numba.core.caching import CompileResultCacheImpl

from pellucid.kernels.backend import compile
from pellucid.kernels.backend import precompile as ahead


@compile.kernel("f8(f8)")
def twice(x):  # type: ignore[no-untyped-def]
    return x + x


@compile.kernel("f8(f8)")
def thrice(x):  # type: ignore[no-untyped-def]
    return x + x + x


def test_without_a_folder_for_the_cache_kernels_run_and_the_user_hears_of_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only install and no home: none of Numba's locators has a folder that it can write."""
    started: list[str] = []
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    monkeypatch.setattr(ahead, "begin", started.append)
    compile._uncached.cache_clear()
    with caplog.at_level(logging.INFO):
        assert (twice(7.0), thrice(7.0)) == (14.0, 21.0)
    compile._uncached.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert not started  # a second process would compile for itself alone
