"""Explain attention masks as text: which keys each query may attend to, and which mask forbids."""

from collections.abc import Sequence
from typing import NamedTuple

from pellucid.core.array import Array, host
from pellucid.nn.masks import checked_masks, valid_lens_mask
from pellucid.ops.attention import causal_mask

OPEN, SEVERAL, WEIGHED = ".", "+", "~"


class Reason(NamedTuple):
    """One mask broadcast to the scores (N, H, L, S): what it forbids, and what it adds."""

    letter: str
    name: str
    forbids: Array
    adds: Array


def explain_mask(
    length: int,
    source_length: int | None = None,
    *,
    attn_mask: Array | None = None,
    key_padding_mask: Array | None = None,
    is_causal: bool = False,
    valid_lens: Array | None = None,
    num_heads: int = 1,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
) -> str:
    """Return a text that shows which keys each query may attend to, and which mask forbids others.

    Accepts the masks of `MultiheadAttention.forward` (True = not allowed, floats are added), with
    or without a batch axis, and article 004's `valid_lens`, in any combination, for `length`
    queries and `source_length` keys (by default as many). Examples and heads with equal masks are
    shown once. `queries` and `keys` are labels, one for each (else `ValueError`). Raises the errors
    that attention would raise for the masks.

    >>> import numpy as np
    >>> print(explain_mask(3, is_causal=True, valid_lens=np.array([2])))
    3 queries over 3 keys
    query 0  . c +   sees 1: key 0
    query 1  . . +   sees 2: keys 0-1
    query 2  . . v   sees 2: keys 0-1
    . may look   c is_causal   v valid_lens   + several forbid it
    """
    source_length = length if source_length is None else source_length
    for name, labels, count in (("queries", queries, length), ("keys", keys, source_length)):
        if labels is not None and len(labels) != count:
            raise ValueError(f"{name} must be {count} labels, one for each; got {len(labels)}")
    if key_padding_mask is not None and host.ndim(key_padding_mask) == 1:
        key_padding_mask = host.asarray(key_padding_mask)[None]
    n = _examples(attn_mask, key_padding_mask, valid_lens, num_heads)
    shape = (n, num_heads, length, source_length)
    reasons = _reasons(shape, attn_mask, key_padding_mask, is_causal, valid_lens)
    rows = [str(i) for i in range(length)] if queries is None else list(queries)
    columns = None if keys is None else list(keys)
    pictures: dict[str, list[tuple[int, int]]] = {}
    for example in range(n):
        for head in range(num_heads):
            here = [r._replace(forbids=r.forbids[example, head], adds=r.adds[example, head])
                    for r in reasons]  # fmt: skip
            picture = _picture(here, rows, columns, (length, source_length))
            pictures.setdefault(picture, []).append((example, head))
    lines = [f"{_many(length, 'query', 'queries')} over {_many(source_length, 'key', 'keys')}"]
    for picture, where in pictures.items():
        if len(pictures) > 1:
            lines.append(_where(where, n, num_heads))
        lines.append(picture)
    lines.append(_legend(reasons, "".join(pictures)))
    return "\n".join(lines)


def _examples(
    attn_mask: Array | None, key_padding_mask: Array | None, valid_lens: Array | None, heads: int
) -> int:
    """Return the batch size N of the masks; 1 if none of them has a batch axis."""
    if key_padding_mask is not None:
        return len(key_padding_mask)
    if valid_lens is not None:
        return len(valid_lens)
    if attn_mask is not None and host.ndim(attn_mask) == 3:
        return len(attn_mask) // heads
    return 1


def _reasons(
    shape: tuple[int, int, int, int],
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    is_causal: bool,
    valid_lens: Array | None,
) -> list[Reason]:
    """Return the masks that were given, broadcast to the scores' shape (N, H, L, S)."""
    lens_mask = lens_padding = None
    if valid_lens is not None:
        made = valid_lens_mask(valid_lens, shape[3], shape[1])
        lens_mask, lens_padding = (made, None) if made.ndim == 3 else (None, made)
    attn, padding = checked_masks(attn_mask, key_padding_mask, shape)
    lens = [mask for mask in checked_masks(lens_mask, lens_padding, shape) if mask is not None]
    given = {
        ("m", "attn_mask"): attn,
        ("p", "key_padding_mask"): padding,
        ("c", "is_causal"): causal_mask(*shape[2:]) if is_causal else None,
        ("v", "valid_lens"): lens[0] if lens else None,
    }
    reasons = []
    for (letter, name), mask in given.items():
        if mask is not None:
            mask = host.broadcast_to(mask, shape)
            forbids = mask if mask.dtype == host.bool_ else host.isneginf(mask)
            adds = host.where(forbids | (mask.dtype == host.bool_), 0.0, mask)
            reasons.append(Reason(letter, name, forbids, adds))
    return reasons


def _picture(
    reasons: list[Reason], rows: list[str], columns: list[str] | None, shape: tuple[int, int]
) -> str:
    """Draw the masks of one example and head, a line for each query."""
    forbidden = host.zeros(shape, int)
    marks = host.full(shape, OPEN)
    for reason in reasons:
        forbidden += reason.forbids
        marks[reason.forbids] = reason.letter
        marks[(marks == OPEN) & (reason.adds != 0)] = WEIGHED
    marks[forbidden > 1] = SEVERAL
    names = [str(i) for i in range(shape[1])] if columns is None else columns
    cell = max((len(name) for name in columns), default=1) if columns else 1
    left = max((len(row) for row in rows), default=1)
    lines = []
    if columns:
        lines.append(" " * (left + 8) + " ".join(name.rjust(cell) for name in names))
    for label, line, closed in zip(rows, marks, forbidden > 0, strict=True):
        drawn = " ".join(mark.rjust(cell) for mark in line)
        seen = _seen(host.flatnonzero(~closed), names, runs=columns is None)
        lines.append(f"query {label.rjust(left)}  {drawn}   {seen}")
    return "\n".join(lines)


def _seen(open_keys: Array, names: list[str], runs: bool) -> str:
    """List the keys that a query may attend to; if `runs`, adjacent keys as a range."""
    if not len(open_keys):
        return "sees nothing: dead, gets zeros and gives zero gradient"
    jumps = host.diff(open_keys) > 1 if runs else host.ones(len(open_keys) - 1, bool)
    parts = host.split(open_keys, host.flatnonzero(jumps) + 1)
    shown = [
        names[part[0]] if len(part) == 1 else f"{names[part[0]]}-{names[part[-1]]}"
        for part in parts
    ]
    return f"sees {len(open_keys)}: {'key' if len(open_keys) == 1 else 'keys'} {', '.join(shown)}"


def _where(places: list[tuple[int, int]], n: int, heads: int) -> str:
    """Name the examples and heads that share a picture."""
    examples = sorted({example for example, _ in places})
    inside = sorted({head for _, head in places})
    if len(places) < len(examples) * len(inside):
        return "; ".join(f"example {example} head {head}" for example, head in places) + ":"
    parts = [f"{_plural('example', examples)}"] if n > 1 else []
    parts += [f"{_plural('head', inside)}"] if len(inside) < heads else []
    return ", ".join(parts) + ":"


def _plural(word: str, numbers: list[int]) -> str:
    return f"{word}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _legend(reasons: list[Reason], drawn: str) -> str:
    parts = [f"{OPEN} may look"]
    if any((r.adds != 0).any() for r in reasons):
        parts.append(f"{WEIGHED} may look, a number is added to its score")
    parts += [f"{r.letter} {r.name}" for r in sorted(reasons)]
    if f" {SEVERAL} " in drawn.replace("\n", " "):
        parts.append(f"{SEVERAL} several forbid it")
    return "   ".join(parts)
