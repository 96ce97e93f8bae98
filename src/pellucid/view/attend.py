"""From a model and a sentence to a picture of its attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.core.errors import UserError
from pellucid.families import family_of
from pellucid.generation import SearchConfig
from pellucid.view.look import undisturbed
from pellucid.view.picture import Picture
from pellucid.view.record import Record
from pellucid.view.side import Text
from pellucid.view.tokens import UNKNOWNS, legible


def attention(
    model: Any,
    source: Text,
    target: Text | None = None,
    *,
    search: SearchConfig | None = None,
) -> Picture:
    """Look at the attention of a model while it reads `source` and says `target`.

    `model` is a trained model with its tokenizers, which takes texts or token ids, or a bare one,
    which takes token ids only. Without `target` it is the model's own best answer, found as
    `search` says (default: as saved with the model). A decoder alone continues `source`; an encoder
    alone puts `target`, a token each, where `source` is masked, and without a mask predicts every
    token in plain sight. Ids are without begin and end. The gradient is that of Σ −log p of the
    target's tokens and, where one is said, its end. The model is left as it was.

    Raises `UserError` for a sentence without tokens, with more than the model has positions, or
    with ids that it does not know.

    >>> from pellucid.models import Seq2Seq, Seq2SeqConfig
    >>> model = Seq2Seq(Seq2SeqConfig(11, 13, d_model=8, num_attention_heads=2, ffn_dim=17))
    >>> picture = attention(model, [5, 6, 7], [4, 8])
    >>> picture.record.layers("cross")[0].probabilities.shape
    (2, 3, 3)
    """
    trained: Any = None if isinstance(model, nn.Module) else model
    inner: Any = model if trained is None else trained.model
    saved: SearchConfig = getattr(trained, "search", SearchConfig())
    search = search or saved
    family = family_of(model)
    with undisturbed(inner):
        record: Record = family.trace(inner, trained, source, target, search)
    if not all(np.isfinite(x).all() for m in record.maps for x in (m.q, m.k, m.v, m.doutputs)):
        raise UserError("the model's numbers are not finite (NaN or infinite): nothing to draw")
    return Picture(_with_unknown(replace(record, title=legible(record.title))))


def _with_unknown(record: Record) -> Record:
    """Note the characters that the model has no token for; an unknown that it says has no name."""
    unknown = dict.fromkeys(
        label.text
        for label in (*record.source, *record.target)
        if label.kind == "unknown" and label.text not in UNKNOWNS
    )
    if not unknown:
        return record
    return replace(record, notes=(*record.notes, f"Never seen in training: {' '.join(unknown)}"))
