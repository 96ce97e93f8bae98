"""Numbers that a topic of `pellucid explain` compares with a limit.

`{check: NAME}` in the Markdown of a topic runs the function NAME of this file. Each function
returns numbers that must be near 0; most are differences of one thing computed in two ways.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pellucid import Rng, nn, ops
from pellucid.check.op_cases import normal
from pellucid.core.batch import Batch, Packed
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim import schedules
from pellucid.optim.adam import Moments, adam


class Check(NamedTuple):
    """A number computed on this machine that must not exceed a limit."""

    error: Callable[[], float]
    limit: float


CHECKS: dict[str, Check] = {}

Differences = Callable[[], Any]


def at_most(limit: float) -> Callable[[Differences], Differences]:
    """Return a decorator that adds a function to `CHECKS` under its name.

    The check is the largest absolute value in the array that the function returns; it must not
    exceed `limit`.
    """

    def add(differences: Differences) -> Differences:
        CHECKS[differences.__name__] = Check(lambda: float(np.abs(differences()).max()), limit)
        return differences

    return add


LR, BETA1, BETA2 = 0.1, 0.9, 0.999


def _adam(gradients: np.ndarray) -> tuple[np.ndarray, Moments]:
    """Run Adam from θ = 0, one step per row of `gradients`.

    Return θ and the moments m, v.
    """
    theta = np.zeros(gradients.shape[1:])
    moments = Moments(np.zeros_like(theta), np.zeros_like(theta))
    for step, gradient in enumerate(gradients, start=1):
        theta, moments = adam(theta, gradient, moments, step=step, lr=LR, eps=0.0)
    return theta, moments


@at_most(1e-14)
def adam_sums() -> Any:
    """Compare m and v after 7 steps with their closed forms.

    They are weighted sums of the gradients: m_t = Σ_i (1 − β1) β1^(t − i) g_i, and v_t likewise
    with β2 and g_i².
    """
    gradients = normal(7, 5)
    _, (m, v) = _adam(gradients)
    ages = np.arange(7)[::-1, None]
    first = ((1 - BETA1) * BETA1**ages * gradients).sum(axis=0)
    second = ((1 - BETA2) * BETA2**ages * gradients**2).sum(axis=0)
    return np.stack([m - first, v - second])


@at_most(1e-14)
def adam_first_step() -> Any:
    """Compare Adam's first step with −lr · sign(g), for gradients g of scales 1e-6 to 1e6."""
    gradient = normal(1, 5) * np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])
    return _adam(gradient)[0] + LR * np.sign(gradient[0])


@at_most(1e-14)
def cross_entropy_p_minus_t() -> Any:
    """Compare the gradient of the summed cross-entropy with softmax(logits) − one-hot."""
    logits, target = normal(4, 7), np.array([1, 0, 6, 3])
    _, saved = ops.cross_entropy(logits, target, reduction="sum")
    difference = ops.cross_entropy_backward(np.ones(()), saved)
    return difference - (ops.softmax(logits)[0] - np.eye(7)[target])


@at_most(3e-3)
def dropout_mean() -> Any:
    """Compare the mean of a million ones after dropout with 1.

    Dropout must keep the expectation.
    """
    return ops.dropout(np.ones((1000, 1000)), 0.3, Rng(0))[0].mean() - 1.0


SMALL: dict[str, Any] = {
    "d_model": 8, "nhead": 2, "dim_feedforward": 11, "dropout": 0.0, "batch_first": True,
    "dtype": np.float64,
}  # fmt: skip


def _network(layer: nn.blocks.TransformerLayer, x: np.ndarray) -> Any:
    """Compute a layer's feed-forward network, W2 max(0, W1 x + b1) + b2, with NumPy."""
    return layer.linear2(np.maximum(layer.linear1(x), 0.0))


@at_most(1e-14)
def encoder_layer_by_hand() -> Any:
    """Compare an encoder layer with its two formulas, LayerNorm(x + sublayer(x))."""
    layer, x = nn.TransformerEncoderLayer(**SMALL), normal(3, 5, 8)
    u = layer.norm1(x + layer.self_attn(x, x, x)[0])
    return layer.norm2(u + _network(layer, u)) - layer(x)


@at_most(1e-14)
def decoder_layer_by_hand() -> Any:
    """Compare a decoder layer with its three formulas, LayerNorm(x + sublayer(x))."""
    layer, x, memory = nn.TransformerDecoderLayer(**SMALL), normal(3, 5, 8), normal(3, 7, 8)
    u = layer.norm1(x + layer.self_attn(x, x, x, is_causal=True)[0])
    v = layer.norm2(u + layer.multihead_attn(u, memory, memory)[0])
    return layer.norm3(v + _network(layer, v)) - layer(x, memory, tgt_is_causal=True)


@at_most(1e-14)
def feed_forward_positions() -> Any:
    """Check that shuffling the inputs of a feed-forward network shuffles its outputs.

    The network treats each position alike.
    """
    layer, x = nn.TransformerEncoderLayer(**SMALL), normal(7, 8)
    order = np.array([3, 0, 6, 2, 5, 1, 4])
    return _network(layer, x[order]) - _network(layer, x)[order]


@at_most(1e-14)
def transformer_by_hand() -> Any:
    """Compare a whole Transformer with its layers and final norms called one by one."""
    first, last = (nn.LayerNorm(8, dtype=np.float64) for _ in range(2))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**SMALL), 2, first)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**SMALL), 2, last)
    model = nn.Transformer(**SMALL, custom_encoder=encoder, custom_decoder=decoder)
    memory, y = normal(3, 5, 8), normal(3, 7, 8)
    whole = model(memory, y)
    for layer in encoder.layers:
        memory = layer(memory)
    memory = first(memory)
    for layer in decoder.layers:
        y = layer(y, memory)
    return last(y) - whole


@at_most(1e-12)
def generation_cache() -> Any:
    """Compare log p computed token by token, with the cache, with the whole target at once."""
    config = Seq2SeqConfig(
        source_vocab_size=13, target_vocab_size=13, d_model=8, num_attention_heads=2,
        encoder_layers=1, decoder_layers=2, ffn_dim=11, dropout=0.0,
    )  # fmt: skip
    model = Seq2Seq(config, dtype=np.float64).eval()
    source, target = Packed.of([[5, 6, 7]]), [1, 4, 9, 8]
    rows, _ = model.decode_rows(Batch(source, Packed.of([[*target, 2]])))
    at_once = ops.log_softmax(model.output(rows))[0]
    state, stepped = model.start(source), []
    for token in target:
        log_p, state = model.step(state, np.array([token]))
        stepped.append(log_p[0])
    return np.stack(stepped) - at_once


@at_most(1e-14)
def warm_up_peak() -> Any:
    """Compare the paper's learning rate at the end of the warm-up with 1 / √(E w)."""
    rates = [schedules.paper(4000, d_model=E, warmup=4000) * (E * 4000) ** 0.5 for E in (64, 512)]
    return np.array(rates) - 1.0


@at_most(1e-14)
def embedding_one_hot() -> Any:
    """Compare the gradient of an embedding with that of one-hot rows times its matrix."""
    index, weight, dy = np.array([[1, 4, 1], [0, 2, 4]]), normal(5, 7), normal(2, 3, 7)
    _, saved = ops.embedding(index, weight)
    _, one_hot_saved = ops.linear(np.eye(5)[index], weight.T)
    _, dweight, _ = ops.linear_backward(dy, one_hot_saved)
    return dweight.T - ops.embedding_backward(dy, saved)


@at_most(5e-4)
def gelu_tanh() -> Any:
    """Compare the exact GELU with its tanh approximation on [−6, 6]."""
    x = np.linspace(-6.0, 6.0, 120_001)
    return ops.gelu(x)[0] - ops.gelu(x, "tanh")[0]


@at_most(1e-14)
def layer_norm_removed() -> Any:
    """Return the components of LayerNorm's dx along 1 and along x̂; both must be 0.

    The output does not change if x moves in these two directions.
    """
    _, saved = ops.layer_norm(normal(5, 11), eps=0.0)
    dx, _, _ = ops.layer_norm_backward(normal(11, 5).T, saved)
    return np.stack([dx.mean(axis=-1), (dx * saved.x_hat).mean(axis=-1)])


@at_most(0.0)
def masks_future() -> Any:
    """Return the change of causal attention's first outputs when later keys change.

    It must be 0. The later values change too.
    """
    q, k, v = normal(3, 5, 7)
    first, _ = ops.attention(q, k, v, causal=True)
    k[3:], v[3:] = 9.0, -9.0
    second, _ = ops.attention(q, k, v, causal=True)
    return (first - second)[:3]


@at_most(1e-14)
def multi_head_loop() -> Any:
    """Compare multi-head attention with a loop over heads that have separate matrices."""
    E, H = 6, 2
    layer = nn.MultiheadAttention(E, H, bias=False, batch_first=True, dtype=np.float64)
    x, heads = normal(5, E), []
    for h in range(H):
        rows = slice(h * E // H, (h + 1) * E // H)
        q, k, v = (x @ p.weight[rows].T for p in layer.projections())
        heads.append(ops.attention(q, k, v)[0])
    y = np.concatenate(heads, axis=-1) @ layer.out_proj.weight.data.T
    return y - layer(x, x, x)[0]


@at_most(1e-12)
def positions_rotated() -> Any:
    """Compare sinusoidal positions P[t + 5] with P[t] after a rotation.

    Each (sin, cos) pair is rotated by 5 times its frequency.
    """
    width, shift = 64, 5
    table = ops.sinusoidal(100, width)
    angle = shift / 10000.0 ** (np.arange(0, width, 2) / width)
    sin, cos = table[:-shift, 0::2], table[:-shift, 1::2]
    turned = np.empty_like(table[shift:])
    turned[:, 0::2] = sin * np.cos(angle) + cos * np.sin(angle)
    turned[:, 1::2] = cos * np.cos(angle) - sin * np.sin(angle)
    return turned - table[shift:]


@at_most(1e-12)
def positions_distance() -> Any:
    """Return P[t]·P[t + 5] for each t, minus the least of them; P are sinusoidal positions.

    All must be 0: the product depends on the distance alone.
    """
    table = ops.sinusoidal(100, 64)
    products = (table[:-5] * table[5:]).sum(axis=-1)
    return products - products.min()


@at_most(1e-14)
def residual_sum() -> Any:
    """Compare the gradient at x of LayerNorm(x + y) with LayerNorm's own dx."""
    y, x = normal(2, 5, 11)
    dz = normal(5, 11)
    _, saved = ops.add_dropout_norm(y, x)
    _, dx, _, _ = ops.add_dropout_norm_backward(dz, saved)
    _, norm_saved = ops.layer_norm(x + y)
    return dx - ops.layer_norm_backward(dz, norm_saved)[0]


@cache
def _products() -> Any:
    """Return 200,000 products q·k of independent standard normal vectors of width 64."""
    q, k = np.random.default_rng(0).standard_normal((2, 200_000, 64))
    return (q * k).sum(axis=-1)


@at_most(0.1)
def scaling_mean() -> Any:
    """Compare the mean of q·k with 0."""
    return _products().mean()


@at_most(0.02)
def scaling_variance() -> Any:
    """Compare the variance of q·k with the width 64; return the relative difference."""
    return _products().var() / 64 - 1


@at_most(1e-14)
def softmax_jacobian() -> Any:
    """Compare `softmax_backward` with dp times the full Jacobian, diag(p) − p pᵀ."""
    p, saved = ops.softmax(normal(7))
    dp = normal(7, 1)[:, 0]
    return (np.diag(p) - np.outer(p, p)) @ dp - ops.softmax_backward(dp, saved)
