"""Which kernel took a call, or why none did."""

from __future__ import annotations

import numpy as np

from pellucid import nn, ops, reference
from pellucid.core.dispatch import dispatch
from pellucid.kernels.choices import Choice, Choices
from pellucid.ops import rules


def test_every_call_is_counted_by_who_computed_it_and_where() -> None:
    layer = nn.TransformerEncoderLayer(24, 3, 40, batch_first=True).eval()
    with Choices() as choices:
        layer(np.ones((2, 12, 24), np.float32))
        layer(np.ones((2, 12, 24), np.float32))
    linear = choices.calls[Choice("linear", "pellucid.kernels.linear", "")]
    assert linear["self_attn"] == 2
    assert linear["self_attn.out_proj"] == 2
    assert linear.total() == 8


def test_the_reason_is_that_of_the_kernel_that_declined() -> None:
    q, cu = np.ones((4, 1, 3), np.float32), np.array([0, 4])
    capped_twice = rules.soft_cap(2.0) | rules.alibi | rules.soft_cap(1.0)
    with Choices() as choices:
        dispatch(ops.packed_attention, q, q, q, cu, cu, rule=capped_twice)
        dispatch(ops.softmax, q)
        dispatch(ops.linear, q.astype(np.float64), np.ones((2, 3)))
        with reference():
            dispatch(ops.layer_norm, q)
    assert {(c.op, c.reason) for c in choices.calls if c.kernel is None} == {
        ("packed_attention", "SoftCap twice, with another change between them"),
        ("softmax", "this op has no kernel"),
        ("linear", "expects float32 arrays in one piece of memory, more than 8 rows"),
        ("layer_norm", "kernels are off"),
    }
    assert "reference op: SoftCap twice" in str(choices)
