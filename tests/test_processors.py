"""scripts/processors.py: the tests that it runs on other processors are there."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import processors


def test_every_test_that_it_names_is_there() -> None:
    named = {*processors.TESTS, *processors.OF_TILES, *processors.POOL_TESTS}
    named.add(processors.OTHER_PROCESS.partition("::")[0])
    assert [name for name in sorted(named) if not (processors.ROOT / name).exists()] == []
