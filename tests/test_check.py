from __future__ import annotations

import numpy as np
import pytest

from pellucid import nn, ops
from pellucid.check import TOLERANCE, Case, cases, gradient_check

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{c.kind}-{c.name}" for c in CASES])
def test_gradient(case: Case) -> None:
    assert max(gradient_check(case.forward, case.inputs)) <= TOLERANCE


def test_a_wrong_gradient_is_seen() -> None:
    x = np.linspace(-1, 1, 11)
    assert gradient_check(lambda x: (x**3, lambda dy: 2.999 * x**2 * dy), [x])[0] > 1e-5
    assert gradient_check(lambda x: (x**3, lambda dy: 0.0 * x), [x])[0] == 1.0


def test_every_op_is_enrolled() -> None:
    paired = {name for name in ops.__all__ if f"{name}_backward" in ops.__all__}
    enrolled = {case.name.split("(")[0] for case in CASES if case.kind == "op"}
    assert paired == enrolled


def test_every_layer_is_enrolled_by_itself_or_inside_another() -> None:
    enrolled = {case.name for case in CASES if case.kind == "layer"}
    whole = nn.Transformer(6, 3, 1, 1, 13)
    inside = {type(module).__name__ for _, module in whole.modules()}
    assert {"Linear", "LayerNorm", "MultiheadAttention"} <= enrolled
    assert {"TransformerEncoderLayer", "TransformerDecoderLayer"} <= enrolled & inside
