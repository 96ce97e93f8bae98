"""The figures of the documentation compute what pellucid.ops computes, forward and backward."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import Rng, ops
from pellucid.core.rng import keep_mask
from pellucid.ops.activations import ACTIVATIONS

ROOT = Path(__file__).parents[2]
VIEWER = ROOT / "viewer"

pytestmark = pytest.mark.oracle("node")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def figures(tmp_path: Path) -> Any:
    """Return a function that runs functions of the figures: (name, arguments …) each."""

    def run(*cases: tuple[Any, ...]) -> list[Any]:
        path = tmp_path / "cases.json"
        path.write_text(json.dumps(cases, default=lambda array: array.tolist()), encoding="utf-8")
        done = subprocess.run(
            ["node", "test/figures.mjs", str(path)],
            cwd=VIEWER,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    return run


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.array(found, float), expected, rtol=1e-9, atol=1e-12)


def test_softmax(figures: Any, rng: np.random.Generator) -> None:
    x, dp = 4 * rng.normal(size=7), rng.normal(size=7)
    p, saved = ops.softmax(x)
    found = figures(("softmax", x), ("softmaxBackward", dp, p))
    close(found[0], p)
    close(found[1], ops.softmax_backward(dp, saved))


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_attention_with_a_mask_and_a_query_without_keys(
    figures: Any, rng: np.random.Generator, scale: float
) -> None:
    q, k, v, dz = (rng.normal(size=shape) for shape in ((5, 3), (7, 3), (7, 2), (5, 2)))
    allowed = rng.random((5, 7)) < 0.6
    allowed[2] = False
    z, saved = ops.attention(q, k, v, mask=~allowed, scale=scale)
    weights, saved_weights = ops.softmax(np.where(allowed, scale * (q @ k.T), -np.inf))
    forward, backward = figures(
        ("attention", q, k, v, scale, allowed),
        ("attentionBackward", dz, q, k, v, scale, weights),
    )
    close(forward["weights"], weights)
    close(forward["z"], z)
    dq, dk, dv, *_ = ops.attention_backward(dz, saved)
    for name, expected in (("dq", dq), ("dk", dk), ("dv", dv)):
        close(backward[name], expected)
    close(backward["da"], ops.softmax_backward(dz @ v.T, saved_weights))


def test_layer_norm(figures: Any, rng: np.random.Generator) -> None:
    x, gamma, dy = rng.normal(size=(3, 5))
    y, saved = ops.layer_norm(x, gamma)
    dx, dgamma, _ = ops.layer_norm_backward(dy, saved)
    (forward,) = figures(("layerNorm", x, gamma))
    (backward,) = figures(("layerNormBackward", dy, gamma, forward))
    close(forward["y"], y)
    close(forward["mu"], x.mean())
    close(backward["dx"], dx)
    close(backward["dgamma"], dgamma)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu", "leaky_relu", "silu"])
def test_activations_and_their_slopes(figures: Any, name: str) -> None:
    x = np.concatenate([np.linspace(-6, 6, 41), [0.0, -9.0, 9.0, 1e-3]])
    pair = ACTIVATIONS[name].op
    y, saved = pair.forward(x)
    found = figures((f"{name}.y", x), (f"{name}.slope", x))
    close(found[0], y)
    close(found[1], pair.backward(np.ones_like(x), saved))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy(figures: Any, rng: np.random.Generator, smoothing: float) -> None:
    x = 3 * rng.normal(size=5)
    loss, saved = ops.cross_entropy(x[None], np.array([3]), label_smoothing=smoothing)
    (t,) = figures(("smoothed", 3, 5, smoothing))
    found = figures(("crossEntropy", x, t), ("crossEntropyBackward", x, t))
    close(found[0], loss)
    close(found[1], ops.cross_entropy_backward(np.array(1.0), saved)[0])


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
def test_dropout_draws_the_same_mask(
    figures: Any, rng: np.random.Generator, p: float, seed: int
) -> None:
    x = rng.normal(size=11)
    keep = keep_mask(Rng(seed), x.shape, p)
    found = figures(("keepMask", seed, 11, p), ("dropout", x, keep, p))
    assert found[0] == keep.tolist()
    close(found[1], ops.dropout(x, p, Rng(seed))[0])


def test_linear(figures: Any, rng: np.random.Generator) -> None:
    x, weight, bias, dy = (rng.normal(size=shape) for shape in (3, (2, 3), 2, 2))
    y, saved = ops.linear(x, weight, bias)
    dx, dweight, _ = ops.linear_backward(dy, saved)
    found = figures(("linear", x, weight, bias), ("linearBackward", dy, x, weight))
    close(found[0], y)
    close(found[1]["dx"], dx)
    close(found[1]["dweight"], dweight)
