"""Who may look at whom: torch's masks, read by one rule.

In a bool mask True means **not allowed**; a float mask is added to the scores. (Only
`nn.functional.scaled_dot_product_attention` has it the other way round, as in torch.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pellucid.core.array import Array, float32, host, to_host
from pellucid.ops.attention import causal_mask


def generate_square_subsequent_mask(sz: int, *, dtype: Any = float32) -> Array:
    """Return the float mask (sz, sz) that adds −inf where key s lies after query l.

    >>> generate_square_subsequent_mask(2)
    array([[  0., -inf],
           [  0.,   0.]], dtype=float32)
    """
    return host.triu(host.full((sz, sz), -host.inf, dtype), 1)


def valid_lens_mask(valid_lens: Array, length: int, num_heads: int = 1) -> Array:
    """Return the mask that leaves only the first valid_lens keys of `length`. Article 004.

    valid_lens (N,) gives a key_padding_mask, (N, length). valid_lens (N, L), one for every query,
    gives an attn_mask, (N · num_heads, L, length). True = not allowed. A length of 0 forbids every
    key; such a query attends to nothing and gets zeros, not NaN.

    >>> import numpy as np
    >>> valid_lens_mask(np.array([1, 0]), 2)
    array([[False,  True],
           [ True,  True]])
    """
    lens = to_host(valid_lens) if hasattr(valid_lens, "dtype") else host.asarray(valid_lens)
    if lens.ndim not in (1, 2) or not host.issubdtype(lens.dtype, host.integer):
        raise ValueError(
            f"valid_lens must be integers of shape (N,) or (N, L), got {lens.dtype} {lens.shape}"
        )
    mask: Array = host.arange(length) >= lens[..., None]
    return mask if lens.ndim == 1 else host.repeat(mask, num_heads, axis=0)


def check_mask(mask: Array, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Array:
    """Return `mask` as an array; raise `TypeError` on its dtype, `ValueError` on its shape."""
    mask = to_host(mask) if hasattr(mask, "dtype") else host.asarray(mask)
    if mask.dtype != host.bool_ and not host.issubdtype(mask.dtype, host.floating):
        raise TypeError(
            f"{name} must be bool (True = not allowed) or float (added to the scores), got "
            f"{mask.dtype}; convert it with .astype(bool)"
        )
    if mask.shape not in shapes.values():
        expected = " or ".join(f"{letters} = {shape}" for letters, shape in shapes.items())
        raise ValueError(f"{name} must have shape {expected}; got {mask.shape}")
    return mask


def combine(
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    n: int | None,
    heads: int,
    length: int,
    source_length: int,
    dtype: Any = host.float64,
) -> Array | None:
    """Return one mask that broadcasts to (N, H, L, S), or None; `n` is None without a batch.

    attn_mask: (L, S) or (N·H, L, S); key_padding_mask: (N, S), or (S,) without a batch. Both apply.
    Two bool masks give a bool one; otherwise True becomes −inf and the numbers are added, in
    `dtype`, the scores'.
    """
    masks = []
    if attn_mask is not None:
        per_head = (heads if n is None else n * heads, length, source_length)
        letters = "(H, L, S)" if n is None else "(N·H, L, S)"
        mask = check_mask(attn_mask, "attn_mask", {"(L, S)": per_head[1:], letters: per_head})
        per_batch = (1 if n is None else n, heads, length, source_length)
        masks.append(mask.reshape(per_batch) if mask.ndim == 3 else mask)
    if key_padding_mask is not None:
        expected = {"(S,)": (source_length,)} if n is None else {"(N, S)": (n, source_length)}
        mask = check_mask(key_padding_mask, "key_padding_mask", expected)
        masks.append(mask[None, None, None] if n is None else mask[:, None, None])
    masks = [mask if mask.dtype == host.bool_ else converted(mask, dtype) for mask in masks]
    if len(masks) < 2:
        return masks[0] if masks else None
    return both(*masks)


def converted(mask: Array, dtype: Any) -> Array:
    """Return a float mask in another float dtype; what was finite stays finite."""
    if host.dtype(dtype).itemsize >= mask.dtype.itemsize:
        return mask.astype(dtype)
    limit = host.finfo(dtype).max
    return host.where(host.isinf(mask), mask, host.clip(mask, -limit, limit)).astype(dtype)


def both(first: Array, second: Array) -> Array:
    """Return the mask that says what both say; they broadcast.

    Two large negative numbers add up to the largest there is: only −inf and True forbid.
    """
    if first.dtype == second.dtype == host.bool_:
        return host.asarray(first | second)
    one, other = _as_added(first), _as_added(second)
    with host.errstate(over="ignore"):
        total: Array = one + other
    overflowed = host.isinf(total) & host.isfinite(one) & host.isfinite(other)
    return host.where(overflowed, host.finfo(total.dtype).min, total)


def _as_added(mask: Array) -> Array:
    """Return a mask as numbers to add to the scores: True becomes −inf."""
    if mask.dtype != host.bool_:
        return mask
    return host.where(mask, host.float32(-host.inf), host.float32(0.0))


def with_free_keys(
    mask: Array | None, is_causal: bool, lengths: Array, source_lengths: Array, extra: int
) -> Array | None:
    """Return mask and causality as one mask in which every sequence has extra keys, open to all.

    lengths, source_lengths (N,): queries and keys of each sequence; the extra keys come behind.
    """
    length, longest = int(lengths.max(initial=0)), int(source_lengths.max(initial=0))
    if mask is not None:
        mask = to_host(mask)
        mask = host.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, extra)])
    if is_causal:
        later = causal_mask(length, longest + extra)
        ours = host.arange(longest + extra) < source_lengths[:, None, None]
        causal = (later & ours)[:, None]
        mask = causal if mask is None else both(mask, causal)
    return mask
