"""Every op of the table said in torch's own words, to be differentiated by torch's autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.oracles import oracle

from pellucid.check import OpCase
from pellucid.check.cases import ruled
from pellucid.core.rng import Rng, keep_mask
from pellucid.ops.attention import _by_head
from pellucid.ops.relative_buckets import relative_buckets
from pellucid.ops.rotary import Angles
from pellucid.ops.rule import EVERYTHING, Rule

torch = oracle("torch")
functional = torch.nn.functional
Tensor = Any


def run(case: OpCase, dy: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return torch's output and the gradients of the case's arrays."""
    arrays = {k: torch.tensor(x.copy(), requires_grad=True) for k, x in case.arrays.items()}
    fixed = {
        k: torch.tensor(v.copy()) if isinstance(v, np.ndarray) else v for k, v in case.fixed.items()
    }
    y = globals()[f"_{case.op}"](**ruled(arrays | fixed))
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), [x.grad.numpy() for x in arrays.values()]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x, weight, bias)


def _softmax(x: Tensor) -> Tensor:
    return functional.softmax(x, -1)


def _log_softmax(x: Tensor) -> Tensor:
    return functional.log_softmax(x, -1)


def _layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _rms_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    y = functional.rms_norm(x, x.shape[-1:], weight, eps)
    return y if bias is None else y + bias


def _relu(x: Tensor) -> Tensor:
    return functional.relu(x)


def _leaky_relu(x: Tensor, slope: float) -> Tensor:
    return functional.leaky_relu(x, slope)


def _silu(x: Tensor) -> Tensor:
    return functional.silu(x)


def _swiglu(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return functional.silu(a) * b


def _geglu(x: Tensor, approximate: str = "none") -> Tensor:
    a, b = x.chunk(2, -1)
    return functional.gelu(a, approximate=approximate) * b


def _share_heads(x: Tensor, times: int) -> Tensor:
    return x.repeat_interleave(times, dim=-2)


def _frequencies(half: int, angles: Angles | None) -> Tensor:
    """Llama 3's, pair by pair, by wavelengths as its paper's code has them."""
    pairs = torch.arange(half, dtype=torch.float64)
    if angles is None:
        return 10000.0 ** (-pairs / half)
    base, factor, low, high, original = angles
    speeds = []
    for speed in (base ** (-pairs / half)).tolist():
        wavelength = 2 * math.pi / speed
        smooth = (original / wavelength - low) / (high - low)
        if wavelength > original / low:
            speed = speed / factor
        elif wavelength >= original / high:
            speed = (1 - smooth) * speed / factor + smooth * speed
        speeds.append(speed)
    return torch.tensor(speeds, dtype=torch.float64)


def _rotary(x: Tensor, positions: Tensor, angles: Angles | None = None) -> Tensor:
    """Complex numbers in place of pairs: x e^(iθ)."""
    a, b = x.double().chunk(2, -1)
    theta = positions[:, None, None] * _frequencies(a.shape[-1], angles)
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(theta), theta)
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


def _norm_rotate(
    x: Tensor,
    heads: tuple[int, int],
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    positions: Tensor | None = None,
    *,
    eps: float = 1e-5,
) -> Tensor:
    parts = list(x.split([*heads, x.shape[1] - sum(heads)], 1))
    for i, weight in enumerate((q_weight, k_weight)):
        if weight is not None:
            parts[i] = functional.rms_norm(parts[i], weight.shape, weight, eps)
        if positions is not None:
            parts[i] = _rotary(parts[i], positions)
    return torch.cat(parts, 1)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


def _dropout(x: Tensor, p: float, rng: Rng | None) -> Tensor:
    if not p or rng is None:
        return x
    return x * torch.tensor(keep_mask(rng, tuple(x.shape), p)) / (1 - p)


def _embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    return functional.embedding(index, weight, padding_idx)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
    rule: Rule = EVERYTHING,
    places: tuple[int, int] = (0, 0),
) -> Tensor:
    """`places`: the number of the sequence, and how many keys are before its first query."""
    shape = (*q.shape[:-1], k.shape[-2])
    allowed = torch.ones(shape, dtype=torch.bool)
    added = torch.zeros(shape, dtype=q.dtype)
    if mask is not None:
        if mask.dtype == torch.bool:
            allowed = allowed & ~mask
        else:
            added, allowed = added + mask, allowed & (mask > -torch.inf)
    if causal:
        allowed = allowed.tril()
    alive = allowed.any(-1, keepdim=True)
    added = torch.where(allowed | ~alive, added, -torch.inf)
    added = torch.where(alive, added, 0.0)  # torch gives NaN to a row with nothing to attend to
    example, offset = places
    if rule.allowed:
        seen = torch.tensor([
            [[looks(part, offset + i, s, n) for i in range(shape[-2]) for s in range(shape[-1])]
             for n in range(example, example + (shape[0] if len(shape) > 3 else 1))]
            for part in rule.allowed
        ]).all(0)  # fmt: skip
        seen = seen.reshape(len(seen), *([1] * (len(shape) > 2)), *shape[-2:])
        seen = seen if len(shape) > 3 else seen[0]
        allowed = allowed & seen
        alive = allowed.any(-1, keepdim=True)
        added = torch.where(allowed | ~alive, added, -torch.inf)
        added = torch.where(alive, added, 0.0)
    if not dropout and not rule.score:
        return functional.scaled_dot_product_attention(q, k, v, added, scale=scale) * alive
    a = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    nothing = a.new_zeros((*a.shape[:-1], 0))  # the scores of what is no key
    for part in rule.score:
        if type(part).__name__ == "Sinks":
            nothing = part.numbers[:, None, None].expand(*a.shape[:-1], 1)
        else:
            a = scored(part, a, offset)
    p = functional.softmax(torch.cat([a + added, nothing], -1), -1)[..., : shape[-1]]
    return _dropout(p, dropout, _by_head(rng, shape)) @ v * alive


def looks(part: Any, query: int, key: int, example: int) -> bool:
    """Whether a query sees a key, by the words of the part's page."""
    match type(part).__name__:
        case "Causal":
            return key <= query
        case "Window":
            return abs(query - key) < part.size
        case "Prefix":
            return key <= query or key < part.lengths[example]
        case "Documents":
            return sum(part.starts <= query) == sum(part.starts <= key)
    raise AssertionError(part)


def scored(part: Any, a: Tensor, offset: int) -> Tensor:
    """The scores after a part, in torch's words."""
    distance = offset + np.arange(a.shape[-2])[:, None] - np.arange(a.shape[-1])
    match type(part).__name__:
        case "SoftCap":
            return part.cap * torch.tanh(a / part.cap)
        case "Fixed":
            return a + torch.tensor(part.function(distance, a.shape[-3]))
        case "Dilated":
            return a.masked_fill(torch.tensor(distance % part.step != 0), -torch.inf)
        case "Relative":
            bucket = relative_buckets(distance, len(part.table), part.longest, part.both_ways)
            return a + part.table[torch.tensor(bucket)].permute(2, 0, 1)
        case "Applied":
            return part.forward(a, distance)[0]
    raise AssertionError(part)


def _head_scale(q: Tensor, scale: Tensor) -> Tensor:
    return torch.einsum("...hd,h->...hd", q, scale)


def _packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    *,
    dropout: float = 0.0,
    rng: Rng | None = None,
    offset: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """One sequence at a time."""
    parts = []
    for n in range(len(cu_q) - 1):
        here, there = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        one = [q[here], k[there], v[there]]
        if there.start == there.stop:
            parts.append(one[0].new_zeros(one[0].shape[:2] + v.shape[-1:]))
            continue
        rows = None if rng is None else rng.at(rng.rows[here])
        places = n, 0 if offset is None else int(offset[n])
        heads = (x.transpose(0, 1) for x in one)
        y = _attention(*heads, dropout=dropout, rng=rows, places=places, **options)
        parts.append(y.transpose(0, 1))
    return torch.cat(parts)


def _attention_weights(
    q: Tensor, k: Tensor, cu_q: Tensor, cu_k: Tensor, *, average: bool = False, **options: Any
) -> Tensor:
    """With values that are the rows of a unit matrix, the output is the weights."""
    longest = int(max(cu_k[1:] - cu_k[:-1]))
    place = torch.cat([torch.arange(n) for n in cu_k[1:] - cu_k[:-1]])
    v = torch.eye(longest, dtype=q.dtype)[place][:, None].expand(-1, q.shape[1], -1)
    rows = _packed_attention(q, k, v, cu_q, cu_k, **options)
    w = torch.zeros(len(cu_q) - 1, q.shape[1], int(max(cu_q[1:] - cu_q[:-1])), longest).to(q.dtype)
    for n in range(len(cu_q) - 1):
        here = rows[cu_q[n] : cu_q[n + 1]]
        w[n, :, : len(here)] = here.transpose(0, 1)
    return w.mean(1) if average else w


def _cross_entropy(logits: Tensor, target: Tensor, **options: Any) -> Tensor:
    if target.shape == logits.shape:  # torch wants the classes on axis 1
        return functional.cross_entropy(logits.flatten(0, -2), target.flatten(0, -2), **options)
    if logits.ndim == 1:
        return functional.cross_entropy(logits, target, **options)
    loss = functional.cross_entropy(logits.flatten(0, -2), target.flatten(), **options)
    return loss.reshape(target.shape) if loss.ndim else loss


def _linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    ignore_index: int = -100,
    **options: Any,
) -> Tensor:
    z = functional.linear(x, weight, bias)
    return functional.cross_entropy(z, target, None, None, ignore_index, reduction="sum", **options)


def _add_dropout_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> Tensor:
    return _layer_norm(residual + _dropout(x, dropout, rng), weight, bias)


def _bias_act_dropout(
    x: Tensor,
    bias: Tensor | None,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> Tensor:
    shifted = x if bias is None else x + bias
    special = {
        "leaky_relu": functional.leaky_relu,
        "gelu_tanh": lambda h: functional.gelu(h, approximate="tanh"),
        "geglu_tanh": lambda h: _geglu(h, "tanh"),
    }
    act = special.get(activation) or globals()[f"_{activation}"]
    return _dropout(act(shifted), dropout, rng)
