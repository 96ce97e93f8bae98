"""Every gradient of a whole Transformer with dropout, masks and norms that are not 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid import Rng, nn

TOLERANCE = 1e-7


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_gradient_against_differences(norm_first: bool) -> None:
    """One random projection of the output, one random direction for every array."""
    g = np.random.default_rng(0)
    model = nn.Transformer(
        6, 2, 2, 2, 11, 0.3, "gelu", batch_first=True, norm_first=norm_first, dtype=np.float64
    )
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.3 * g.standard_normal(parameter.shape)
    src, tgt = g.standard_normal((3, 7, 6)), g.standard_normal((3, 5, 6))
    padding = nn.valid_lens_mask(np.array([7, 4, 0]), 7)  # the last source is empty: dead queries

    def forward() -> tuple[Any, Any]:
        return model.forward(
            src, tgt, tgt_is_causal=True, rng=Rng(5),
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip

    y, backward = forward()
    projection = g.standard_normal(y.shape)
    dsrc, dtgt = backward(projection)
    checked = {"src": (src, dsrc), "tgt": (tgt, dtgt)}
    checked |= {name: (p.data, p.grad) for name, p in model.named_parameters()}
    wrong = {}
    for name, (values, gradient) in checked.items():
        direction = g.standard_normal(values.shape)
        difference, h = 0.0, 1e-6
        for sign in (1, -1):
            values += sign * h * direction
            difference += sign * float((forward()[0] * projection).sum()) / (2 * h)
            values -= sign * h * direction
        expected = float((gradient * direction).sum())
        error = abs(expected - difference) / max(float(np.linalg.norm(gradient)), 1e-3)
        if not error <= TOLERANCE:
            wrong[name] = error
    assert not wrong, f"{len(wrong)} of {len(checked)} gradients"
