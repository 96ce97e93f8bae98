"""Attention maps of every layer and head, and their gradients, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import HAS_KERNELS

from pellucid import Rng, nn, ops
from pellucid.core.vjp import Call, Result, Run, observing

N, L, S, E, H = 2, 3, 5, 6, 2
packed_attention = import_module("pellucid.ops.packed_attention")  # the page, not its function
NAMES = [
    "encoder.layers.0.self_attn",
    "encoder.layers.1.self_attn",
    "decoder.layers.0.self_attn",
    "decoder.layers.0.multihead_attn",
]
P = 0.3


def model() -> nn.Transformer:
    return nn.Transformer(E, H, 2, 1, 11, P, batch_first=True, dtype=np.float64, seed=1)


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    g = np.random.default_rng(0)
    return tuple(g.standard_normal((N, length, E)) for length in (S, L, L))  # type: ignore[return-value]


def recorded(m: nn.Transformer) -> dict[str, nn.AttentionMap]:
    src, tgt, dy = inputs()
    with nn.Recorder() as recorder:
        _, backward = m.forward(src, tgt, tgt_is_causal=True, rng=Rng(3))
    backward(dy)
    return recorder.maps


def test_every_layer_and_head_by_its_full_name() -> None:
    maps = recorded(model())
    assert sorted(maps) == sorted(NAMES)
    for name, seen in maps.items():
        queries, keys = (
            (S if "encoder" in name else L),
            (L if "decoder.layers.0.self" in name else S),
        )
        for array in (seen.probabilities, seen.weights, seen.dweights, seen.dscores):
            assert array is not None
            assert array.shape == (N, H, queries, keys)


def test_before_and_after_dropout() -> None:
    for seen in recorded(model()).values():
        np.testing.assert_allclose(seen.probabilities.sum(-1), 1.0)
        kept, allowed = seen.weights != 0, seen.probabilities > 0
        np.testing.assert_allclose(seen.weights[kept], seen.probabilities[kept] / (1 - P))
        assert 0.4 < kept[allowed].mean() < 0.95
        assert seen.dprobabilities is not None
        assert seen.dweights is not None
        np.testing.assert_array_equal(seen.dprobabilities[allowed & ~kept], 0.0)
        np.testing.assert_allclose(seen.dprobabilities[kept], seen.dweights[kept] / (1 - P))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["dscores", "dprobabilities", "dweights"])
def test_gradients_by_moving_the_map_itself(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Move one score, probability or weight inside one layer of the whole model, and look."""
    m = model()
    src, tgt, dy = inputs()
    gradient = getattr(recorded(m)[name], where)
    for place in [(1, 1, 2, 0), (0, 0, 2, 1), (1, 0, 2, 2)]:
        values = []
        for step in (1e-6, -1e-6):
            with monkeypatch.context() as patch:
                patch.setattr(packed_attention, "attention", moving(name, where, place, step))
                with nn.Recorder():
                    y, _ = m.forward(src, tgt, tgt_is_causal=True, rng=Rng(3))
            values.append((y * dy).sum())
        difference = (values[0] - values[1]) / 2e-6
        np.testing.assert_allclose(gradient[place], difference, rtol=1e-5, atol=1e-8)


def moving(name: str, where: str, place: tuple[int, ...], step: float) -> Callable[..., Any]:
    """An attention that moves one number of its map when the layer `name` runs."""
    order = iter(NAMES)  # the order in which they run

    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        out, saved = ops.attention(q, k, v, **options)
        if next(order) != name:
            return out, saved
        probabilities, keep = saved.probabilities, saved.weights != 0
        if where == "dscores":
            scores = saved.scale * (q @ k.swapaxes(-1, -2))
            if options["rule"].allowed:
                later = np.triu(np.ones(scores.shape[-2:], bool), 1)
                scores = np.where(later, -np.inf, scores)
            scores[place] += step
            probabilities = np.exp(scores - scores.max(-1, keepdims=True))
            probabilities /= probabilities.sum(-1, keepdims=True)
        elif where == "dprobabilities":
            probabilities = probabilities.copy()
            probabilities[place] += step
        weights = np.where(keep, probabilities / (1 - P), 0.0)
        if where == "dweights":
            weights[place] += step
        return weights @ v, saved

    return attention


def test_packed_rows_record_the_same_maps() -> None:
    m = model()
    layer = m.encoder.layers[0].eval()
    src, _, _ = inputs()
    cu = np.array([0, S, S + 3])
    rows = np.concatenate([src[0], src[1, :3]])
    packed, padded = nn.Recorder(), nn.Recorder()
    with packed:
        y, backward = layer.run(rows, nn.Context(cu_seqlens=cu))
    backward(np.ones_like(y))
    padding = np.arange(S) >= np.array([[S], [3]])
    with padded:
        y, backward = layer.forward(src, None, padding)
    backward(np.where(padding[..., None], 0.0, np.ones_like(y)))
    one, other = packed.maps["self_attn"], padded.maps["self_attn"]
    for i, length in enumerate((S, 3)):
        inside = (i, slice(None), slice(length), slice(length))
        for what in ("probabilities", "weights", "dweights", "dprobabilities", "dscores"):
            a, b = getattr(one, what)[inside], getattr(other, what)[inside]
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_recording_changes_nothing_and_nothing_is_recorded_unasked() -> None:
    m, (src, tgt, _) = model().eval(), inputs()
    rows, cu = src.reshape(-1, E), np.array([0, S, 2 * S])
    plain = m(src, tgt), m.encoder.run(rows, nn.Context(cu_seqlens=cu))[0]
    seen = nn.Recorder()
    with seen:
        recorded = m(src, tgt), m.encoder.run(rows, nn.Context(cu_seqlens=cu))[0]
    kept = len(seen.maps), len(seen.rows)
    m(src, tgt)
    assert (len(seen.maps), len(seen.rows)) == kept
    for a, b in zip(plain, recorded, strict=True):
        np.testing.assert_array_equal(a, b)


@HAS_KERNELS
def test_a_recorder_asks_for_the_reference_op_of_attention_alone() -> None:
    layer = nn.TransformerEncoderLayer(24, 2, 40, batch_first=True).eval()
    x, taken = np.random.default_rng(0).standard_normal((2, 12, 24)).astype(np.float32), {}

    def watch(call: Call, run: Run) -> Result:
        result = run(call)
        taken[call.op.__name__] = call.kernel, call.declined
        return result

    with observing(watch), nn.Recorder():
        layer(x)
    assert taken["packed_attention"] == (None, "an observer asked for what the reference op saves")
    assert taken["linear"] == ("pellucid.kernels.linear", "")


def test_a_map_that_backward_reads_cannot_be_written_to() -> None:
    src, tgt, _ = inputs()
    with nn.Recorder() as recorder:
        model().eval().forward(src, tgt)
    for name in NAMES:
        seen = recorder.maps[name]
        for array in (seen.probabilities, seen.weights, seen.q, seen.k, seen.v):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0.0


def test_layers_keep_nothing() -> None:
    m = model().eval()
    before = {name: sorted(vars(module)) for name, module in m.named_modules()}
    src, tgt, _ = inputs()
    with nn.Recorder():
        m(src, tgt)
    assert {name: sorted(vars(module)) for name, module in m.named_modules()} == before


@pytest.mark.parametrize("norm_first", [False, True])
def test_rows_of_every_residual_step_and_their_gradients(norm_first: bool) -> None:
    """x, y and their gradients, of the step and of its sublayer, as the maths says."""
    layer = nn.TransformerDecoderLayer(
        E, 2, 11, norm_first=norm_first, batch_first=True, dtype=np.float64
    ).eval()
    g = np.random.default_rng(4)
    x, memory, dy = (g.standard_normal((1, n, E)) for n in (S, 3, S))
    with nn.Recorder() as recorder:
        y, backward = layer.forward(x, memory)
    assert all(seen.dy is None and seen.dx is None for seen in recorder.rows.values())
    dx, _ = backward(dy)
    rows = recorder.rows
    assert sorted(rows) == [f"{i}{part}" for i in range(3) for part in ("", ".sublayer")]
    np.testing.assert_array_equal(rows["0"].x, x[0])
    np.testing.assert_array_equal(rows["2"].y, y[0])
    np.testing.assert_allclose(rows["2"].dy, dy[0])
    np.testing.assert_allclose(rows["0"].dx, dx[0])
    norms = (layer.norm1, layer.norm2, layer.norm3)
    for i, norm in enumerate(norms):
        step, sublayer = rows[str(i)], rows[f"{i}.sublayer"]
        if norm_first:
            np.testing.assert_allclose(sublayer.x, norm(step.x))
            np.testing.assert_allclose(step.y, step.x + sublayer.y)
            np.testing.assert_allclose(sublayer.dy, step.dy)
        else:
            np.testing.assert_array_equal(sublayer.x, step.x)
            np.testing.assert_allclose(step.y, norm(step.x + sublayer.y))
            np.testing.assert_allclose(step.dx, sublayer.dx + sublayer.dy)
        if i:
            np.testing.assert_array_equal(step.x, rows[str(i - 1)].y)
            np.testing.assert_allclose(step.dx, rows[str(i - 1)].dy)


def test_rows_of_a_stack_have_the_full_names_of_its_parts() -> None:
    m, (src, tgt, _) = model().eval(), inputs()
    with nn.Recorder() as recorder:
        m(src, tgt)
    assert {"encoder.layers.0.0.sublayer", "decoder.layers.0.2", "decoder.norm"} <= set(
        recorder.rows
    )
    np.testing.assert_array_equal(
        recorder.rows["encoder.norm"].x, recorder.rows["encoder.layers.1.1"].y
    )


@pytest.mark.parametrize("average", [True, False])
def test_a_gradient_of_the_weights_is_part_of_the_maps(average: bool) -> None:
    mha = nn.MultiheadAttention(E, H, batch_first=True, dtype=np.float64).eval()
    random = np.random.default_rng(5)
    x = random.standard_normal((N, L, E))
    with nn.Recorder() as recorder:
        (y, w), backward = mha.forward(x, x, x, average_attn_weights=average)
    dw = random.standard_normal(w.shape)
    backward(np.zeros_like(y), dw)
    seen = recorder.maps[""]
    each = np.repeat(dw[:, None] / H, H, axis=1) if average else dw
    np.testing.assert_allclose(seen.dweights, each, atol=1e-15)
    assert np.abs(seen.dscores).max() > 0


def test_a_layer_that_runs_twice_has_the_gradients_of_its_last_call() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 11, batch_first=True, dtype=np.float64).eval()
    x = inputs()[0]
    with nn.Recorder() as recorder:
        y, backward = layer.forward(2 * x)
    backward(y)
    (expected,) = recorder.maps["self_attn"].dprojections
    with nn.Recorder() as recorder:
        (first, first_backward), (last, last_backward) = layer.forward(x), layer.forward(2 * x)
    first_backward(first)
    last_backward(last)
    (found,) = recorder.maps["self_attn"].dprojections
    np.testing.assert_array_equal(found, expected)
