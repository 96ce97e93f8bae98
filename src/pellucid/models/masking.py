"""What a masked language model is asked: some tokens hidden, changed or left, and predicted."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.core.array import Array, host
from pellucid.core.batch import Packed
from pellucid.core.rng import Rng, random_bits
from pellucid.models.config import MaskedLMConfig

MASKED, CHANGED = 0.8, 0.1
"""Of the tokens chosen, these shares become the mask and a random token; the rest stay."""


class Masked(NamedTuple):
    """A text with some of its tokens hidden."""

    text: Packed
    chosen: Array
    """(M,) the rows to predict, ascending."""
    wanted: Array
    """(M,) the tokens that stood there."""


def mask_tokens(text: Packed, config: MaskedLMConfig, rng: Rng) -> Masked:
    """Choose `config.masked_share` of each sequence's tokens and hide them, keyed by their rows.

    Begin, end and padding are never chosen. Of a sequence with n other tokens, round(share · n)
    are, and at least one: the ones whose random bits are smallest. 80 % of the chosen become the
    mask, 10 % a random token, which may be the same, 10 % stay as they are.
    Source: Devlin et al. 2019 (BERT), 3.1 and A.1.

    >>> config = MaskedLMConfig(vocab_size=11)
    >>> masked = mask_tokens(Packed.of([[1, 5, 6, 7, 2]]), config, Rng(0))
    >>> len(masked.chosen)
    1
    """
    kept_apart = [config.pad_token_id, config.bos_token_id, config.eos_token_id]
    rows = host.flatnonzero(~host.isin(text.tokens, kept_apart))
    bits = random_bits(rng.at(text.rows[rows]), (len(rows), 3))
    sequence = host.repeat(host.arange(len(text)), text.lengths)[rows]
    counts = host.bincount(sequence, minlength=len(text))
    asked = host.maximum(host.rint(config.masked_share * counts), 1)
    order = host.lexsort((bits[:, 0], sequence))  # by sequence, smallest bits first
    rank = host.arange(len(rows)) - host.repeat(host.cumsum(counts) - counts, counts)
    chosen = host.sort(order[rank < asked[sequence]])
    share = bits[chosen, 1] / 2.0**32
    others = host.setdiff1d(host.arange(config.vocab_size), [*kept_apart, config.mask_id])
    at_random = others[(bits[chosen, 2].astype(host.uint64) * len(others)) >> host.uint64(32)]
    at = rows[chosen]
    wanted = text.tokens[at]
    tokens = text.tokens.copy()
    tokens[at] = host.where(
        share < MASKED, config.mask_id, host.where(share < MASKED + CHANGED, at_random, wanted)
    )
    return Masked(Packed(tokens, text.cu_seqlens, text.examples), at, wanted)
