"""AMX is used where the processor has it and Linux lets this process use it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.kernels.backend import amx, bfloat16


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Stand in for a processor with AMX and a Linux that allows it; note what it is asked."""
    calls: list[tuple[int, ...]] = []

    def syscall(*numbers: int) -> int:
        calls.append(numbers)
        return 0

    monkeypatch.setattr(bfloat16, "AVAILABLE", True)
    monkeypatch.setattr(amx, "FEATURES", frozenset({"+amx-tile", "+amx-bf16"}))
    monkeypatch.setattr(amx.sys, "platform", "linux")
    monkeypatch.setattr(amx.ctypes, "CDLL", lambda name: SimpleNamespace(syscall=syscall))
    return calls


def available() -> Any:
    return amx.available.__wrapped__()


def test_linux_is_asked_for_tiles(asked: list[tuple[int, ...]]) -> None:
    assert available()
    assert asked == [(158, 0x1023, 18)]


def test_a_linux_that_refuses_is_obeyed(
    asked: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuses = SimpleNamespace(syscall=lambda *numbers: -1)
    monkeypatch.setattr(amx.ctypes, "CDLL", lambda name: refuses)
    assert not available()
    assert "Linux refuses AMX" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        (bfloat16, "AVAILABLE", False),
        (amx, "FEATURES", frozenset({"+amx-tile", "-amx-bf16"})),
        (amx.sys, "platform", "darwin"),
    ],
    ids=["no AVX512-BF16", "no AMX for bfloat16", "not Linux"],
)
def test_it_is_not_asked_for_elsewhere(
    change: tuple[Any, str, Any], asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*change)
    assert not available()
    assert not asked
