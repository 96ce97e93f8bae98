"""Derivatives compared exactly: what passes, what cannot be, and errors too small to measure."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pellucid.check import TOLERANCE, Case, OpCase, cases, check_exact, op_cases
from pellucid.core.vjp import Pair, pair_of
from pellucid.ops.norms import NORMS

ERF = "trunc has no form in a finite field"
NO_FORM = {
    "op gelu": ERF,
    "op geglu": ERF,
    "op bias_act_dropout (gelu)": ERF,
    "op bias_act_dropout (geglu)": ERF,
    "layer GELU": ERF,
}
"""Why a row cannot be compared exactly; its finite difference remains. A new row whose reason is
in its mathematics (a root, a power or a logarithm before an exp) gets its line here."""


@pytest.mark.parametrize("case", cases(), ids=[f"{c.kind}-{c.name}" for c in cases()])
def test_every_gradient_is_exactly_the_derivative(case: Case) -> None:
    result = check_exact(case)
    assert result.error == 0
    if case.name.startswith("Transformer"):  # norms before an exp: their roots have no exponent
        assert result.reason
        return
    name = f"{case.kind} {case.name}"
    assert result.reason == NO_FORM.get(name, ""), (
        f"not compared exactly. If that is in its mathematics, add {name!r}: {result.reason!r} "
        "to NO_FORM in this file"
    )
    if name not in NO_FORM:
        assert result.arrays >= len(case.arrays) > 0 or case.name == "Embedding"


SMALL = "(1.0 + 1e-12)"
MUTANTS = [
    ("linear", "dweight = dy_rows.T @ x_rows", f"dweight = dy_rows.T @ x_rows * {SMALL}"),
    ("softmax", "dp - xp.sum(dp * p,", f"dp - {SMALL} * xp.sum(dp * p,"),
    ("log_softmax", "dy - xp.exp(log_p)", f"dy - {SMALL} * xp.exp(log_p)"),
    ("attention", "dq = scale * (da @ k)", f"dq = {SMALL} * scale * (da @ k)"),
    ("layer_norm", "(g - mean_g -", "(g - mean_g * (1.0 - 1e-12) -"),
    ("layer_norm", "x_hat * mean_gx) *", f"x_hat * mean_gx * {SMALL}) *"),
    ("rms_norm", "(g - x_hat * mean_gx)", f"(g - x_hat * mean_gx * {SMALL})"),
    ("rms_norm", "Saved(x_hat, inverse_rms,", "Saved(x_hat, 1.0 / xp.sqrt(square),"),  # no eps
    ("gelu (tanh)", "3.0 * _CUBIC", "3.0 * 0.04471500000004"),
    ("silu", "(1.0 + z *", "(1.000000000001 + z *"),
    ("swiglu", "silu_backward(dy * b,", f"silu_backward(dy * b * {SMALL},"),
    ("cross_entropy", "dlog_p = -per_row", f"dlog_p = -{SMALL} * per_row"),
    ("rotary", "-saved.sin)", f"-{SMALL} * saved.sin)"),
    ("embedding (repeats)", "scatter_add(flat, updates,", f"scatter_add(flat, {SMALL} * updates,"),
]


def mutated(case: OpCase, old: str, new: str) -> OpCase:
    """Return the row with one piece of its page replaced."""
    forward, backward = case.of or pair_of(getattr(sys.modules["pellucid.ops"], case.op))
    source = inspect.getsource(sys.modules[forward.__module__])
    assert source.count(old) == 1, f"{case.op} has changed; the patch must follow it"
    page = ModuleType(f"pellucid.ops.{case.op}_mutated")
    sys.modules[page.__name__] = page
    exec(compile(source.replace(old, new), page.__name__, "exec"), page.__dict__)
    del sys.modules[page.__name__]
    names = forward.__name__, backward.__name__
    return replace(case, of=Pair(*(page.__dict__[name] for name in names)))


def row(name: str) -> OpCase:
    return next(case for case in op_cases() if case.name == name)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[f"{m[0]}: {m[2]}" for m in MUTANTS])
def test_an_error_of_1e_12_is_seen_here_and_not_by_differences(
    name: str, old: str, new: str
) -> None:
    case = row(name)
    if name in NORMS:
        case = replace(case, fixed=case.fixed | {"eps": 1e-12})
    assert check_exact(case).error == 0
    wrong = mutated(case, old, new)
    assert max(wrong.errors().values()) <= TOLERANCE
    result = check_exact(wrong)
    assert not result.reason
    assert result.error > 0


def test_a_constant_wrong_in_its_seventh_digit_is_seen() -> None:
    wrong = mutated(row("gelu (tanh)"), "3.0 * _CUBIC", "3.0 * 0.0447151")
    assert check_exact(wrong).error == 1


def test_a_gradient_of_another_shape_is_wrong() -> None:
    def f(x: Any) -> Any:
        return x * x, x

    def f_backward(dy: Any, x: Any) -> Any:
        return 2 * dy[None, ...] * x

    case = OpCase("square", "", {"x": np.ones((3, 2))}, {}, Pair(f, f_backward))
    assert check_exact(case).error == 1
    right = replace(case, of=Pair(f, lambda dy, x: 2 * dy * x))
    assert check_exact(right).error == 0
