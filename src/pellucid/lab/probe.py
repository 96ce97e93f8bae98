"""A look inside a model while it trains, on one fixed batch and without dropout.

Of each attention layer and head, over the queries n, l with at least two keys they may see:

    score_variance   Var[q·k] before any scaling, over all pairs that may meet (000: is it d_k?)
    row_variance     the same over the keys of one query, which is all that softmax sees
    entropy          −Σ w log w, nats; `evenness` is it over log(number of keys)
    top              the largest weight
    jacobian         ‖diag(w) − w wᵀ‖, Frobenius: softmax's derivative by the scaled scores
    scale            what q·k is multiplied by: the setting's, or what the head has learned by now.
                     Queries and keys get scale times what softmax lets through

The same, over all heads of a kind of attention, by the number of keys. Then the variance of the
encoder's rows within a sentence and between sentences: rows that are alike leave cross-attention
nothing to choose from. Then the mean length of a token's row and of a position's as they are added,
the gradient's norm of every part, and the feed-forward units whose gradient is exactly zero for
every row of the batch: the dead ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.batch import Batch
from pellucid.core.files import saving
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import AttentionMap, Recorder
from pellucid.training.events import Ended, Event, Started, Stepped

Array = np.ndarray
KINDS = ("encoder", "decoder", "cross")
"""Of attention: `kind_of` says which a layer is."""
DIGITS = 4


class Prober:
    """A listener that probes the model after the steps asked for, and when training ends.

    What it finds is appended to `path` as lines of JSON; `read_probes` reads them back.
    """

    def __init__(self, model: Seq2Seq, batch: Batch, steps: Iterable[int], path: Path) -> None:
        self.model, self.batch, self.steps, self.path = model, batch, frozenset(steps), path

    def __call__(self, event: Event) -> None:
        """Probe if it is time."""
        if isinstance(event, Ended) or (
            isinstance(event, Started | Stepped) and event.step in self.steps
        ):
            found = {"step": event.step, "epoch": event.epoch, **probe(self.model, self.batch)}
            with saving(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")


def read_probes(path: Path) -> list[dict[str, Any]]:
    """Return the probes in a file, by step; of two at one step (a run gone on with) the last."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    probes = {p["step"]: p for p in map(_whole, lines) if p is not None}
    return [probes[step] for step in sorted(probes)]


def _whole(line: str) -> dict[str, Any] | None:
    """Read a line, or return None for one that a killed process left half written."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def kind_of(layer: str) -> str:
    """Return which kind of attention a layer's name means.

    >>> kind_of("decoder.layers.0.multihead_attn")
    'cross'
    """
    if layer.startswith("encoder"):
        return "encoder"
    return "cross" if layer.endswith("multihead_attn") else "decoder"


def head_values(probe: Mapping[str, Any], kind: str, measure: str) -> list[float]:
    """Return what a probe says of every head of a kind of attention, by layer and head.

    Empty where there is no such layer, or the line is older than the measure.
    """
    layers = probe["attention"].items()
    return [v for name, seen in layers if kind_of(name) == kind for v in seen.get(measure, ())]


def probe(model: Seq2Seq, batch: Batch) -> dict[str, Any]:
    """Look at the model with one batch. Its gradients are forgotten; it returns to its own mode."""
    training, recorder = model.training, Recorder()
    model.eval()
    model.zero_grad()
    loss, backward = model.loss(batch, recorder=recorder)
    backward(1.0 / max(loss.tokens, 1))
    heads, by_keys = _attention(batch, recorder.maps)
    found = {
        "attention": heads,
        "by_keys": by_keys,
        "memory": rows_alike(model.encode(batch.source), batch.source.cu_seqlens),
        "lengths": _lengths(model, batch),
        "gradients": _gradient_norms(model),
        "dead": _dead(model),
    }
    model.zero_grad()
    model.train(training)
    return found


# attention ---------------------------------------------------------------------------------------


def _attention(
    batch: Batch, maps: dict[str, AttentionMap]
) -> tuple[dict[str, Any], dict[str, Any]]:
    source, target = batch.source.lengths, batch.target.lengths - 1
    heads: dict[str, Any] = {}
    pooled: dict[str, list[tuple[Array, dict[str, Array]]]] = {}
    for name, seen in maps.items():
        kind = kind_of(name)
        allowed = _allowed(
            source if kind == "encoder" else target,
            target if kind == "decoder" else source,
            seen.causal,
        )
        rows = row_statistics(seen.probabilities, allowed)
        keys = allowed.sum(axis=-1)
        judged = keys >= 2  # one key alone always has all the weight
        scores = np.einsum("nhld,nhsd->nhls", seen.q, seen.k, dtype=np.float64)
        heads[name] = {
            "score_variance": _rounded([np.var(s[allowed]) for s in scores.swapaxes(0, 1)]),
            "row_variance": _rounded(
                _row_variance(scores, allowed).swapaxes(0, 1)[:, judged].mean(axis=1)
            ),
            **{
                what: _rounded(values.swapaxes(0, 1)[:, judged].mean(axis=1))
                for what, values in rows.items()
            },
            "scale": _rounded(np.broadcast_to(np.ravel(seen.scale), seen.q.shape[1])),
        }
        pooled.setdefault(kind, []).append((keys, rows))
    return heads, {kind: _by_keys(layers) for kind, layers in pooled.items()}


def _allowed(queries: Array, keys: Array, causal: bool) -> Array:
    """Return (N, L, S): whether query l of example n is there and may look at key s."""
    length, s = int(queries.max()), int(keys.max())
    there = (np.arange(length) < queries[:, None])[:, :, None]
    seen = (np.arange(s) < keys[:, None])[:, None, :]
    allowed: Array = there & seen
    if causal:
        allowed = allowed & (np.arange(s) <= np.arange(length)[:, None])
    return allowed


def row_statistics(weights: Array, allowed: Array) -> dict[str, Array]:
    """Return what softmax's rows w look like: each (N, H, L), from weights (N, H, L, S).

    ‖diag(w) − w wᵀ‖² = Σ w² − 2 Σ w³ + (Σ w²)², so no matrix is made.

    >>> one = row_statistics(np.array([[[[0.5, 0.5]]]]), np.ones((1, 1, 2), bool))
    >>> round(float(one["jacobian"][0, 0, 0]), 3), float(one["evenness"][0, 0, 0])
    (0.5, 1.0)
    """
    w = weights.astype(np.float64) * allowed[:, None]
    squares, cubes = (w**2).sum(axis=-1), (w**3).sum(axis=-1)
    entropy = -(w * np.log(np.where(w > 0, w, 1.0))).sum(axis=-1)
    most = np.log(np.maximum(allowed.sum(axis=-1), 2))[:, None]
    return {
        "entropy": entropy,
        "evenness": entropy / most,
        "top": w.max(axis=-1),
        "jacobian": np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0)),
    }


def _row_variance(scores: Array, allowed: Array) -> Array:
    """Return the variance (N, H, L) of each query's scores over the keys it may see."""
    count = np.maximum(allowed.sum(axis=-1), 1)[:, None]
    kept = scores * allowed[:, None]
    mean = kept.sum(axis=-1) / count
    variance: Array = np.maximum((kept**2).sum(axis=-1) / count - mean**2, 0.0)
    return variance


def _by_keys(layers: list[tuple[Array, dict[str, Array]]]) -> dict[str, dict[str, float]]:
    """Return means by the number of keys, over layers, heads and queries."""
    found = {}
    for keys in sorted({int(k) for counts, _ in layers for k in np.unique(counts) if k >= 2}):
        means = {
            what: np.concatenate(
                [rows[what].swapaxes(0, 1)[:, counts == keys].ravel() for counts, rows in layers]
            ).mean()
            for what in ("jacobian", "top", "evenness")
        }
        queries = sum(int((counts == keys).sum()) for counts, _ in layers)
        found[str(keys)] = {**{k: _round(v) for k, v in means.items()}, "queries": queries}
    return found


# the rest ----------------------------------------------------------------------------------------


def rows_alike(rows: Array, cu_seqlens: Array) -> dict[str, float]:
    """Return the variance of packed rows (U, E) about their sentence's mean, and of these means.

    Both are means over the channels; every sentence counts the same.

    >>> rows_alike(np.array([[1.0], [1.0], [3.0], [5.0]]), np.array([0, 2, 4]))
    {'within': 0.5, 'between': 2.25}
    """
    sentences = np.split(rows.astype(np.float64), cu_seqlens[1:-1])
    means = [sentence.mean(axis=0) for sentence in sentences]
    return {
        "within": _round(np.mean([sentence.var(axis=0).mean() for sentence in sentences])),
        "between": _round(np.var(means, axis=0).mean()),
    }


def _lengths(model: Seq2Seq, batch: Batch) -> dict[str, dict[str, float]]:
    """Return the mean length of the rows that are added: tokens and positions, after scaling."""
    found = {}
    config = model.config
    for side, part, packed in (
        ("source", model.source, batch.source),
        ("target", model.target, batch.target.without_last()),
    ):
        tokens = part.tokens.weight.data[packed.tokens] * config.token_factor
        positions = part.places[packed.positions] * config.position_factor
        found[side] = {
            "token": _round(np.linalg.norm(tokens, axis=1).mean()),
            "position": _round(np.linalg.norm(positions, axis=1).mean()),
        }
    return found


def _gradient_norms(model: Seq2Seq) -> dict[str, float]:
    """Return the norm of every parameter's gradient, q, k and v apart, and of all together."""
    found, total = {}, 0.0
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        square = float(np.sum(np.square(parameter.grad, dtype=np.float64)))
        total += square
        if name.endswith("in_proj_weight"):
            for letter, part in zip("qkv", np.split(parameter.grad, 3), strict=True):
                short = name.replace("in_proj_weight", f"{letter}_proj_weight")
                found[short] = _round(np.linalg.norm(part))
        elif parameter.grad.ndim > 1:
            found[name] = _round(math.sqrt(square))
    return {"all": _round(math.sqrt(total)), **found}


def _dead(model: Seq2Seq) -> dict[str, float]:
    """Return the share of units of each feed-forward network whose gradient is zero throughout."""
    found = {}
    for name, parameter in model.named_parameters():
        if name.endswith("linear1.weight") and parameter.grad is not None:
            dead = ~np.any(parameter.grad, axis=1)
            found[name.removesuffix(".linear1.weight")] = _round(dead.mean())
    return found


def _round(value: Any) -> float:
    return float(f"{float(value):.{DIGITS}g}")


def _rounded(values: Any) -> list[float]:
    return [_round(value) for value in values]
