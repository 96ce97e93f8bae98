"""What the page says of the backward pass is what the library computes."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, bert, gpt, shaken

from pellucid import ops
from pellucid.apps import view
from pellucid.apps.view.backward import STEPS, code, statements
from pellucid.apps.view.record import Map, select_cell
from pellucid.ops.activations import ACTIVATIONS

SOURCE, TARGET = [5, 6, 7, 5, 9, 4, 3], [4, 12, 8, 6]


def test_every_step_has_the_lines_that_compute_it() -> None:
    lines = code()
    assert set(lines) == {*STEPS, *(f"activation.{name}" for name in ACTIVATIONS)}
    assert "@ dout" in lines["dV"][0].text
    assert "dout @" in lines["dW"][0].text
    assert [line.function for line in lines["dA"]] == ["attention_backward", "softmax_backward"]
    assert "sum(dp * p" in lines["dA"][1].text
    for steps in lines.values():
        for line in steps:
            assert line.text.strip() == source_lines(line.function)[line.number - 1].strip()


def source_lines(function: str) -> list[str]:
    module = sys.modules[getattr(ops, function).__module__]
    return inspect.getsource(module).splitlines()


def test_a_line_that_is_gone_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"attention\.py assigns no nothing"):
        statements(ops.attention_backward, "nothing")


@pytest.mark.parametrize("scale", ["sqrt_d_k", "learned"])
def test_input_gradients_match_finite_differences(scale: str) -> None:
    model = shaken(replace(CONFIG, attention_scale=scale), np.float64)  # type: ignore[arg-type]
    record = view.attention(model, SOURCE, TARGET).record
    parameters = dict(model.named_parameters())
    for m in record.maps:
        assert m.dqueries is not None
        assert m.dkeys is not None
        g = np.random.default_rng(2)
        x, y = (g.standard_normal((n, 15)) for n in (m.q.shape[1], m.k.shape[1]))
        weights = np.split(parameters[f"{m.name}.in_proj_weight"].data, 3)
        ends = [surrogate(m, step * x, step * y, weights) for step in (1e-5, -1e-5)]
        slope = (ends[0] - ends[1]) / 2e-5
        assert slope == pytest.approx((m.dqueries * x).sum() + (m.dkeys * y).sum(), rel=1e-6)


def surrogate(m: Map, dx: np.ndarray, dy: np.ndarray, weights: list[np.ndarray]) -> float:
    """Σ dZ ⊙ Z after the rows of queries moved by dx, those of keys and values by dy."""
    q, k, v = (
        part + by_head(rows @ w.T)
        for part, rows, w in zip((m.q, m.k, m.v), (dx, dy, dy), weights, strict=True)
    )
    z, _ = ops.attention(q * m.scale, k, v, scale=1.0, causal=(m.kind == "decoder"))
    return float((z * m.doutputs).sum())


def by_head(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), 3, 5).swapaxes(0, 1)


@pytest.mark.parametrize("model", ["seq2seq", "causal", "masked"])
def test_the_check_is_a_finite_difference_of_the_loss(model: str) -> None:
    if model == "seq2seq":
        record = view.attention(shaken(), SOURCE, TARGET).record
    else:
        record = view.attention(gpt() if model == "causal" else bert(), "a[MASK]가", None).record
    check = record.check
    assert check is not None
    assert check.cell == select_cell(record)
    assert check.difference == pytest.approx(check.by_hand, rel=1e-5)
    m = record.layers(check.cell.kind)[check.cell.layer]
    assert m.doutputs[check.cell.head, :, check.entry].sum() == pytest.approx(
        check.by_hand, rel=1e-4
    )


def test_the_check_leaves_parameters_as_they_were() -> None:
    model = shaken()
    before = [parameter.data for parameter in model.parameters()]
    view.attention(model, SOURCE, TARGET)
    assert all(p.data is data for p, data in zip(model.parameters(), before, strict=True))
