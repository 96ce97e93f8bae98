"""What a masked language model is asked: some tokens hidden, changed or left, and predicted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.rng import Rng, random_bits
from pellucid.models.config import MaskedLMConfig

MASKED, CHANGED = 0.8, 0.1
"""Of the tokens chosen, these shares become the mask and a random token; the rest stay."""


class Masked(NamedTuple):
    """A text with some of its tokens hidden."""

    text: Packed
    chosen: np.ndarray
    """(M,) the rows to predict, ascending."""
    wanted: np.ndarray
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
    rows = np.flatnonzero(~np.isin(text.tokens, kept_apart))
    bits = random_bits(rng.at(text.rows[rows]), (len(rows), 3))
    sequence = np.repeat(np.arange(len(text)), text.lengths)[rows]
    counts = np.bincount(sequence, minlength=len(text))
    asked = np.maximum(np.rint(config.masked_share * counts), 1)
    order = np.lexsort((bits[:, 0], sequence))  # by sequence, smallest bits first
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.sort(order[rank < asked[sequence]])
    share = bits[chosen, 1] / 2.0**32
    others = np.setdiff1d(np.arange(config.vocab_size), [*kept_apart, config.mask_id])
    at_random = others[(bits[chosen, 2].astype(np.uint64) * len(others)) >> np.uint64(32)]
    at = rows[chosen]
    wanted = text.tokens[at]
    tokens = text.tokens.copy()
    tokens[at] = np.where(
        share < MASKED, config.mask_id, np.where(share < MASKED + CHANGED, at_random, wanted)
    )
    return Masked(Packed(tokens, text.cu_seqlens, text.examples), at, wanted)
