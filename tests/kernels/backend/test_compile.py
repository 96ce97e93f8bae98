"""How a kernel is compiled where there is no folder for the cache."""

from __future__ import annotations

import logging

import pytest
from numba.core.caching import CompileResultCacheImpl

from pellucid.kernels.backend import compile, precompile


@compile.kernel("f8(f8)")
def twice(x):  # type: ignore[no-untyped-def]
    return x + x


@compile.kernel("f8(f8)")
def thrice(x):  # type: ignore[no-untyped-def]
    return x + x + x


def test_without_a_folder_for_the_cache_kernels_run_after_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only install and no home: none of Numba's locators has a folder that it can write."""
    started: list[str] = []
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    monkeypatch.setattr(precompile, "begin", started.append)
    compile._warn_uncached.cache_clear()
    with caplog.at_level(logging.INFO):
        assert (twice(7.0), thrice(7.0)) == (14.0, 21.0)
    compile._warn_uncached.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert not started  # a second process would compile for itself alone
