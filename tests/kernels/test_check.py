"""The table of kernels: what it holds, and that it sees what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.kernels.compare import FUSED, HAS_BFLOAT16

from pellucid import ops
from pellucid.check import Result
from pellucid.core import dispatch
from pellucid.core.vjp import Call, Declined
from pellucid.core.vjp import Result as Output
from pellucid.kernels import check as table
from pellucid.kernels.check import (
    StepCase,
    check_bfloat16,
    check_kernels,
    is_of_one_rule,
    kernel_cases,
)
from pellucid.kernels.compare import excess
from pellucid.kernels.precision import bfloat16_products
from pellucid.ops.attention import whole_rule
from pellucid.ops.rule import EVERYTHING, Allowed, Score
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.function import FUNCTIONS

LIGHT = ["dropout", "embedding (repeats)", "rms_norm"]
KERNELS = Path(table.__file__).parent
STEPS = {
    "adam, global_norm (decay)": 7,
    "adam, global_norm (decoupled)": 7,
    "muon, global_norm (matrices)": 5,
}
"""The rows of optimizers, with the number of arrays: a norm, two matrices and their states."""


def light() -> list[table.OpCase]:
    return [case for case in ops_rows() if case.name in LIGHT]


def ops_rows() -> list[table.OpCase]:
    return [case for case in kernel_cases() if isinstance(case, table.OpCase)]


def test_every_kernel_and_every_rule_has_a_row() -> None:
    rows = ops_rows()
    assert {case.op for case in rows} == FUSED
    pages = {path.stem: path.read_text() for path in KERNELS.glob("*.py")}
    has = {name for name, text in pages.items() if "\ndef kernel(call: Call)" in text}
    assert has == FUSED | {"adam", "muon", "global_norm"}
    used = {type(part) for case in rows if "attention" in case.op for part in parts(case)}
    known = {*Score.__subclasses__(), *Distances.__subclasses__(), *Allowed.__subclasses__()}
    assert {each for each in known - {Distances} if each.__module__.startswith("pellucid")} == used


def parts(case: table.OpCase) -> list[object]:
    given = table.ruled(case.arrays | case.fixed)
    rule = given.get("rule", EVERYTHING)
    rule = whole_rule(rule, given.get("mask"), given.get("causal", False))
    return [*rule.allowed, *rule.score]


def test_kernels_pass_and_say_how_many_arrays_were_compared() -> None:
    results = list(check_kernels(light()))
    assert [r.name for r in results] == LIGHT
    assert all(r.passed and not r.reason for r in results)
    assert [r.arrays for r in results] == [2, 2, 4]


def steps() -> list[StepCase]:
    return [case for case in kernel_cases() if isinstance(case, StepCase)]


def test_steps_of_optimizers_pass_and_are_computed_by_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # equal bits would not tell: without FMA a kernel may round as NumPy does
    fused, computed = dispatch.fused, set()

    def watched(call: Call) -> Output | Declined:
        found = fused(call)
        if not isinstance(found, Declined):
            computed.add(call.op.__name__)
        return found

    monkeypatch.setattr(dispatch, "fused", watched)
    results = list(check_kernels(steps()))
    assert [(r.name, r.arrays, r.passed) for r in results] == [
        (*row, True) for row in STEPS.items()
    ]
    assert computed == {"adam", "muon", "global_norm"}


@pytest.mark.parametrize("op", ["adam", "muon", "global_norm"])
def test_a_wrong_step_or_norm_is_seen(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = dispatch.fused

    def scaled(call: Call) -> Output | Declined:
        if op == call.op.__name__ == "adam":
            call.arguments["scale"] *= 1.00001
        if op == call.op.__name__ == "muon":  # a factor of all gradients does not change its step
            call.arguments["momentum"] *= 1.0001
        found = fused(call)
        if op == call.op.__name__ == "global_norm" and not isinstance(found, Declined):
            return found[0] * 1.00001, found[1]
        return found

    monkeypatch.setattr(dispatch, "fused", scaled)
    assert all(r.passed == (op not in r.name) for r in check_kernels(steps()))


def test_what_only_one_rule_needs_is_told_from_what_models_have() -> None:
    alone = {case.name for case in kernel_cases() if is_of_one_rule(case)}
    assert "attention (ALiBi, then a cap)" in alone
    assert "packed_attention (a function)" in alone
    assert alone - {f"packed_attention ({name})" for name in FUNCTIONS} == {
        "attention (ALiBi, then a cap)", "packed_attention (a function)",
    }  # fmt: skip


def test_other_bits_on_other_threads_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [table.digests(LIGHT), table.digests(LIGHT) | {"rms_norm": "other bits"}]
    monkeypatch.setattr(table, "_digests_on", lambda count, names: found.pop())
    wrong = [r.name for r in check_kernels(light()) if not r.passed]
    assert wrong == ["rms_norm"]


def test_a_kernel_that_declines_every_row_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(call: Call) -> Output | Declined:
        return Declined("Numba is not installed") if call.op is ops.rms_norm else whole(call)

    whole = dispatch.fused
    monkeypatch.setattr(dispatch, "fused", fused)
    rms = [case for case in ops_rows() if case.op == "rms_norm"]
    results = list(check_kernels([*light(), *rms]))
    assert [r for r in results if r.reason] == [
        Result("kernel", "rms_norm", 0, 0.0, 1.0, "Numba is not installed")
    ]


def test_where_kernels_are_off_every_op_says_so() -> None:
    with dispatch.reference():
        found = [(r.name, r.reason) for r in check_kernels(light())]
    assert found == [(op, "kernels are off") for op in ("dropout", "embedding", "rms_norm")]


def test_without_numba_every_op_and_model_says_so() -> None:
    script = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from pellucid.apps.cli.main import main
sys.exit(main(["--lang", "en", "check", "--fast", "kernel", "engine"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 of 0 correct" in done.stdout
    assert done.stdout.count("not compared:") == len(FUSED) + len(STEPS)


def test_the_error_is_a_fraction_of_what_is_allowed() -> None:
    plain, exact = np.float32([1, 2, 4]) + np.float32(1e-5), np.array([1.0, 2.0, 4.0])
    assert excess(plain, plain, exact) == pytest.approx(0.5, rel=0.1)
    assert excess(plain + np.float32(2e-5), plain, exact) > 1
    wrong = [plain.astype(np.float64), plain[:2], np.float32([1, np.nan, 4]), None]
    assert [excess(y, plain, exact) for y in wrong] == [np.inf] * 4
    assert excess(None, None, None) == 0.0
    overflown = np.float32([np.inf, 1])
    assert excess(overflown, overflown, np.array([1e39, 1])) == np.inf
    infinite = np.array([1.0, np.inf])
    assert excess(np.float32([1, np.inf]), plain[:2], infinite) == 0.0
    assert excess(np.float32([1, -np.inf]), plain[:2], infinite) == np.inf


def test_products_of_numbers_of_bfloat16_are_exact_in_float32_too() -> None:
    result = check_bfloat16(nullcontext())
    assert (result.name, result.arrays) == ("linear (bfloat16)", 4)
    assert result.passed


@HAS_BFLOAT16
def test_products_of_bfloat16_are_compared() -> None:
    assert check_bfloat16(bfloat16_products()).passed


def test_a_wrong_kernel_of_a_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = (case for case in light() if case.op == "dropout")
    kernel = dispatch.kernel_of("dropout")
    assert kernel is not None

    def scaled(call: Call) -> Output | Declined:
        y, backward = kernel(call)
        return y, lambda dy: backward(dy) * np.float32(1.00001)

    monkeypatch.setattr(dispatch, "kernel_of", lambda op, family: scaled)
    (result,) = check_kernels([replace(row, note="scaled")])
    assert not result.passed
