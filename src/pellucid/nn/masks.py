"""Convert torch's attention masks to rules (`ops.rules`).

In a bool mask True means **not allowed**; a float mask is added to the scores. (Only in
`nn.functional.scaled_dot_product_attention` True means allowed, as in torch.)
"""

from collections.abc import Mapping
from typing import Any

from pellucid.core.array import Array, float32, host, to_host
from pellucid.core.batch import pad_rows
from pellucid.ops import rules
from pellucid.ops.rule import EVERYTHING, Rule, Score, bounds, places


def generate_square_subsequent_mask(sz: int, *, dtype: Any = float32) -> Array:
    """Return the causal mask (sz, sz) as floats: −inf where key s is after query l, else 0.

    >>> generate_square_subsequent_mask(2)
    array([[  0., -inf],
           [  0.,   0.]], dtype=float32)
    """
    return host.triu(host.full((sz, sz), -host.inf, dtype), 1)


def valid_lens_mask(valid_lens: Array, length: int, num_heads: int = 1) -> Array:
    """Return the mask that allows only the first valid_lens of `length` keys. Source: article 004.

    valid_lens (N,) gives a key_padding_mask (N, length). valid_lens (N, L), a number for each
    query, gives an attn_mask (N · num_heads, L, length). True = not allowed. A length of 0 forbids
    every key; attention then gives that query zeros, not NaN. Raises `ValueError` unless valid_lens
    are integers with one or two axes.

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
    """Convert a mask to a NumPy array, and check it.

    Raises `TypeError` unless it is bool or float, `ValueError` unless its shape is one of `shapes`
    (by their letters, for the message).
    """
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


def arranged(
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    is_causal: bool,
    sizes: tuple[int | None, int, int, int],
    dtype: Any,
) -> Rule:
    """Convert torch's masks to an attention rule; sizes: N (None without a batch), H, L, S.

    If a mask allows every query one range of keys, as causal masks, windows and padding do, the
    rule holds the ranges, so that kernels skip other keys. Any other bool mask, and any attn_mask
    for each head, stays a mask. A float mask of only 0 and −inf counts as a bool mask, unless it is
    for each head. Other float masks are added to the scores, in `dtype`, that of the scores. Raises
    as `checked_masks` does.
    """
    rule, added = rules.causal if is_causal else EVERYTHING, []
    attn, padding = checked_masks(attn_mask, key_padding_mask, sizes)
    for mask in (attn, padding):
        if mask is None:
            continue
        # one row for each query, or for each sequence, if all heads agree
        rows = mask if mask.ndim == 2 else None if mask is attn else mask[:, 0, 0]
        hidden = mask if mask.dtype == host.bool_ else _hidden(mask) if rows is not None else None
        adjacent = None
        if hidden is not None and rows is not None:
            adjacent = adjacent_keys(hidden.reshape(rows.shape))
        if adjacent is not None:
            first, last = adjacent
            causal = host.minimum(host.arange(sizes[2]) + 1, sizes[3])
            if mask is padding:
                rule &= rules.lengths(last, first)
            elif host.array_equal(last, causal) and not first.any():
                rule &= rules.causal
            else:
                rule &= rules.bounded(first, last)
        elif hidden is not None:
            rule &= rules.mask(hidden.copy())  # the caller may write to its own before backward
        else:
            added.append(converted(mask, dtype))
    return rule & rules.mask(summed(*added) if len(added) > 1 else added[0]) if added else rule


def _hidden(mask: Array) -> Array | None:
    """Convert a float mask of 0 and −inf to a bool mask; None if it has other values."""
    hidden: Array = mask == -host.inf
    return hidden if bool((hidden | (mask == 0)).all()) else None


def adjacent_keys(hidden: Array) -> tuple[Array, Array] | None:
    """Return the range of keys that each row (L, S) of a mask allows, as first and last + 1.

    Returns None if the allowed keys of any row are not contiguous.

    >>> import numpy as np
    >>> adjacent_keys(np.array([[True, False, False], [True, True, True]]))
    (array([1, 0]), array([3, 0]))
    """
    seen = ~hidden
    count = host.count_nonzero(seen, axis=1)
    first = seen.argmax(axis=1) if seen.shape[1] else host.zeros(len(seen), int)
    last = first + count
    total = host.pad(host.cumsum(seen, axis=1), [(0, 0), (1, 0)])
    rows = host.arange(len(seen))
    return (first, last) if bool((total[rows, last] == count).all()) else None


def checked_masks(
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    sizes: tuple[int | None, int, int, int],
) -> tuple[Array | None, Array | None]:
    """Check torch's two masks; return them in shapes that broadcast to the scores (N, H, L, S).

    attn_mask: (L, S) or (N·H, L, S), returned as (L, S) or (N, H, L, S). key_padding_mask: (N, S),
    returned as (N, 1, 1, S). sizes: N, H, L, S; without a batch N is None, and the masks are (H, L,
    S) and (S,). Raises as `check_mask` does.
    """
    batch, heads, length, source_length = sizes
    n, attn, padding = 1 if batch is None else batch, None, None
    if attn_mask is not None:
        per_head = (n * heads, length, source_length)
        letters = "(H, L, S)" if batch is None else "(N·H, L, S)"
        attn = check_mask(attn_mask, "attn_mask", {"(L, S)": per_head[1:], letters: per_head})
        attn = attn if attn.ndim == 2 else attn.reshape(n, heads, length, source_length)
    if key_padding_mask is not None:
        expected = {"(S,)": (source_length,)} if batch is None else {"(N, S)": (n, source_length)}
        padding = check_mask(key_padding_mask, "key_padding_mask", expected)
        padding = padding.reshape(n, 1, 1, source_length)
    return attn, padding


def converted(mask: Array, dtype: Any) -> Array:
    """Convert a float mask to another float dtype, clipping so that finite values stay finite."""
    if host.dtype(dtype).itemsize >= mask.dtype.itemsize:
        return mask.astype(dtype)
    limit = host.finfo(dtype).max
    return host.where(host.isinf(mask), mask, host.clip(mask, -limit, limit)).astype(dtype)


def summed(first: Array, second: Array) -> Array:
    """Add two float masks; the sum is −inf only where one of them is.

    −inf forbids a key. A sum of finite numbers that overflows therefore becomes the dtype's largest
    finite number of its sign.
    """
    with host.errstate(over="ignore"):
        total: Array = first + second
    overflowed = host.isinf(total) & host.isfinite(first) & host.isfinite(second)
    most = host.finfo(total.dtype).max
    return host.where(overflowed, host.where(total > 0, most, -most), total)


def with_free_keys(
    rule: Rule, cu_q: Array, cu_k: Array, extra: int, offset: Array | None = None
) -> Rule:
    """Extend a rule to `extra` more keys at the end of each sequence, allowed for every query.

    Used for `add_bias_kv` and `add_zero_attn`. cu_q and cu_k are the cu_seqlens of the queries and
    of the keys without the extra ones; `offset` is that of `ops.rule.places`. Raises `ValueError`
    for a rule that changes scores, except by a mask.
    """
    keys, at = host.diff(cu_k), places(cu_q, cu_k, offset)
    first, last = (pad_rows(x, cu_q)[:, None, :, None] for x in bounds(rule, at))
    longest = int(keys.max(initial=0))
    key = host.arange(longest + extra)
    own = key < keys[:, None, None, None]
    opened = rules.mask(own & ((key < first) | (key >= last)))
    for part in (*rule.allowed, *rule.score):
        mask = getattr(part, "mask", None)
        if mask is not None:
            mask = host.broadcast_to(mask, (*mask.shape[:-1], longest))
            mask = host.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, extra)])
            # the extra keys of a shorter sequence are where the mask has padding
            opened = opened & rules.mask(host.where(own, mask, mask.dtype.type(0)))
        elif isinstance(part, Score):
            raise ValueError(
                "attention with add_bias_kv or add_zero_attn takes masks and rules that forbid "
                "keys; this rule changes scores otherwise: leave out that part, or those arguments"
            )
    return opened
