"""The gradient of one token, followed back, is that of an independent backward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, bert, gpt, shaken

from pellucid import ops
from pellucid.apps import view
from pellucid.apps.view.flow import EDGES, TOKENS, edges_of
from pellucid.apps.view.record import Flow, Map, Record, Stage
from pellucid.core.batch import Batch, Packed
from pellucid.nn.recorder import Recorder

SOURCE, TARGET = [5, 6, 7, 5, 9, 4, 3], [4, 12, 8, 6]
READ, EXPECTED = [1, *TARGET], [*TARGET, 2]


def lengths(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.linalg.norm(x, axis=-1)
    return found


def of_pair(**settings: Any) -> tuple[Any, Record]:
    model = shaken(replace(CONFIG, **settings), np.float64)
    return model, view.attention(model, SOURCE, TARGET).record


def backward_of(model: Any, place: int) -> Recorder:
    """Run the library's own pair of loss and backward, all other tokens' gradients set to 0."""
    batch = Batch(Packed.of([SOURCE]), Packed.of([[*READ, 2]]))
    with Recorder() as recorder:
        rows, rows_backward = model.decode_rows(batch)
        logits, output_backward = model.output.forward(rows)
    p, _ = ops.softmax(logits)
    p[np.arange(len(p)), EXPECTED] -= 1.0
    p[np.arange(len(p)) != place] = 0.0
    rows_backward(output_backward(p))
    return recorder


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", ["none", "output"])
def test_lengths_are_those_of_the_librarys_backward(norm: str, tied: str) -> None:
    model, record = of_pair(norm=norm, tie_embeddings=tied)
    assert [flow.step for flow in record.flows] == list(range(len(EXPECTED)))
    flow = record.flows[2]
    recorder = backward_of(model, flow.place)
    steps = [stage for stage in flow.stages if stage.layer is not None]
    assert [s.role for s in steps] == 2 * ["feed_forward", "cross", "attention"] + 2 * [
        "feed_forward",
        "attention",
    ]
    numbers: dict[tuple[str, int], int] = {}
    for stage in reversed(steps):
        assert stage.layer is not None
        at = stage.stack, stage.layer
        number = numbers[at] = numbers.get(at, -1) + 1
        rows = recorder.rows[f"{stage.stack}.layers.{stage.layer}.{number}"]
        assert rows.dx is not None
        assert rows.dy is not None
        np.testing.assert_allclose(stage.lengths[0], lengths(rows.dy), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(stage.lengths[3], lengths(rows.dx), rtol=1e-9, atol=1e-15)
        inner = recorder.rows[f"{stage.stack}.layers.{stage.layer}.{number}.sublayer"]
        assert inner.dx is not None
        assert inner.dy is not None
        around, through = (rows.dy, rows.dx - rows.dy) if norm == "pre" else (inner.dy, inner.dx)
        np.testing.assert_allclose(stage.lengths[1], lengths(around), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(stage.lengths[2], lengths(through), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_goes_around_and_through_adds_up(norm: str) -> None:
    _, record = of_pair(norm=norm)
    for flow in record.flows:
        for above, below in zip(flow.stages, flow.stages[1:], strict=False):
            if above.stack == below.stack:
                np.testing.assert_allclose(above.lengths[3], below.lengths[0], rtol=1e-12)
        for stage in flow.stages:
            arrives, around, through, leaves = stage.lengths
            # |around − through| ≤ ‖around + through‖ ≤ around + through
            assert (leaves <= (around + through) * (1 + 1e-9)).all()
            assert (leaves >= np.abs(around - through) * (1 - 1e-9)).all()
            if norm == "pre" and stage.layer is not None:
                np.testing.assert_array_equal(around, arrives)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_row_of_the_embedding_has_the_finite_difference(norm: str) -> None:
    model, record = of_pair(norm=norm)
    flow = record.flows[1]
    weight = model.source.tokens.weight
    gradient = np.array([slope(model, weight, (5, e), flow) for e in range(CONFIG.d_model)])
    assert flow.tables["source"][0] == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    assert flow.tables["source"][0] == flow.tables["source"][3]  # token 5 is read twice


def slope(model: Any, weight: Any, entry: tuple[int, int], flow: Flow) -> float:
    """Return the finite difference of −log p of one token."""
    batch = Batch(Packed.of([SOURCE]), Packed.of([[*READ, 2]]))
    ends, before = [], weight.data
    for step in (1e-5, -1e-5):
        weight.data = before.copy()
        weight.data[entry] += step
        rows, _ = model.decode_rows(batch)
        log_p, _ = ops.log_softmax(model.output.forward(rows)[0])
        ends.append(-float(log_p[flow.place, EXPECTED[flow.step]]))
    weight.data = before
    return (ends[0] - ends[1]) / 2e-5


def test_the_gradient_of_the_logits_is_p_minus_y() -> None:
    model, record = of_pair()
    batch = Batch(Packed.of([SOURCE]), Packed.of([[*READ, 2]]))
    rows, _ = model.decode_rows(batch)
    p, _ = ops.softmax(model.output.forward(rows)[0])
    for flow, token in zip(record.flows, EXPECTED, strict=True):
        y = np.eye(p.shape[1])[token]
        assert flow.dlogits == pytest.approx(np.linalg.norm(p[flow.place] - y))


def test_edges_add_up_to_the_gradients_of_keys_and_values() -> None:
    """One query alone: its edges are the rows of dk and dv that the library returns."""
    _, record = of_pair()
    m = record.layers("cross")[0]
    only = np.zeros_like(m.doutputs)
    only[:, 1] = m.doutputs[:, 1]
    _, saved = ops.attention(m.q, m.k, m.v, scale=float(m.scale))
    _, dk, dv = ops.attention_backward(only, saved)
    expected = np.sqrt((dk**2).sum((0, 2)) + (dv**2).sum((0, 2)))
    found = {edge.key: edge.length for edge in edges_of(m) if edge.query == 1}
    assert [found[key] for key in range(len(SOURCE))] == pytest.approx(list(expected))


def test_memory_adds_up_to_what_the_encoder_gets() -> None:
    """‖Σ over layers‖ is at most the sum of the lengths; with one layer they are equal."""
    _, record = of_pair(decoder_layers=1, final_norm=False)
    flow = record.flows[0]
    (cross,) = [stage for stage in flow.stages if stage.role == "cross"]
    first = next(stage for stage in flow.stages if stage.stack == "encoder")
    assert cross.memory is not None
    np.testing.assert_allclose(cross.memory, first.lengths[0], rtol=1e-9)


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_models_of_one_stack_are_followed_too(kind: str) -> None:
    model = gpt() if kind == "causal" else bert()
    record = view.attention(model, "a[MASK]가", None).record
    assert 0 < len(record.flows) == min(TOKENS, len(record.steps))
    for flow, step in zip(record.flows, record.steps, strict=False):
        assert flow.place == step.place
        (table,) = flow.tables.values()
        assert (table > 0).any()
        first: Stage = flow.stages[0]
        assert np.flatnonzero(first.lengths[0]).tolist() == [flow.place]
        assert all(len(stage.edges) <= EDGES for stage in flow.stages)


def test_the_embeddings_norm_is_on_the_way() -> None:
    """All tokens are different, so that each row's gradient is that of one place."""
    task = bert(embedding_norm=True, tie_word_embeddings=False)
    record = view.attention(task, "a[MASK]", None).record
    model, flow = task.model, record.flows[0]
    c = model.config
    ids = np.array([c.bos_token_id, *task.token_ids("a[MASK]"), c.eos_token_id])
    (stack,) = model.stacks().values()
    weight = stack.embed.tokens.weight
    expected = int(model(Packed.of([ids]))[flow.place].argmax())

    def loss() -> float:
        log_p, _ = ops.log_softmax(model(Packed.of([ids])))
        return -float(log_p[flow.place, expected])

    before, slopes = weight.data, []
    for e in range(weight.shape[1]):
        ends = []
        for step in (1e-5, -1e-5):
            weight.data = before.copy()
            weight.data[ids[1], e] += step
            ends.append(loss())
        slopes.append((ends[0] - ends[1]) / 2e-5)
    weight.data = before
    found = np.linalg.norm(slopes)
    assert flow.tables["source"][1] == pytest.approx(found, rel=1e-4)


def test_a_map_without_a_backward_has_no_edges() -> None:
    _, record = of_pair()
    m: Map = replace(record.maps[0], dscores=None)
    assert edges_of(m) == ()
