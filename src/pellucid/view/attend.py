"""From a model and a sentence to a picture of its attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pellucid.decoding import SearchConfig
from pellucid.errors import UserError
from pellucid.models.seq2seq import Seq2Seq
from pellucid.view.generation import watch
from pellucid.view.look import look_at_pair, steps_of, undisturbed
from pellucid.view.picture import Picture
from pellucid.view.record import Record
from pellucid.view.side import Side, Text

if TYPE_CHECKING:
    from pellucid.text.tokenizer import Tokenizer


class Trained(Protocol):
    """A model with its tokenizers, as `pellucid.model_folder.load_model` returns it."""

    @property
    def model(self) -> Any:
        """The model."""

    @property
    def source(self) -> Tokenizer:
        """What cuts the texts that it reads."""

    @property
    def target(self) -> Tokenizer:
        """What joins the texts that it says."""

    @property
    def search(self) -> SearchConfig:
        """How it looks for answers."""


def attention(
    model: Trained | Seq2Seq,
    source: Text,
    target: Text | None = None,
    *,
    search: SearchConfig | None = None,
) -> Picture:
    """Look at the attention of a model while it reads `source` and says `target`.

    `model` is a trained model with its tokenizers, which takes texts or token ids, or a bare
    `Seq2Seq`, which takes token ids only. Without `target` it is the model's own best answer, found
    as `search` says (default: as saved with the model). Ids are without begin and end. The gradient
    is that of Σ −log p of the target's tokens and its end. The model is left as it was.

    Raises `UserError` for a sentence without tokens, with more than the model has positions, or
    with ids that it does not know.

    >>> from pellucid.models import Seq2SeqConfig
    >>> model = Seq2Seq(Seq2SeqConfig(11, 13, d_model=8, num_attention_heads=2, ffn_dim=17))
    >>> picture = attention(model, [5, 6, 7], [4, 8])
    >>> picture.record.layers("cross")[0].probabilities.shape
    (2, 3, 3)
    """
    inner, tokenizers, saved = _parts(model)
    search = search or saved
    config = inner.config
    eos, longest = config.eos_token_id, config.max_position_embeddings
    specials = {config.pad_token_id: "<pad>", config.bos_token_id: "<s>", eos: "</s>"}
    read = Side("the sentence", tokenizers[0], config.source_vocab_size, longest, specials)
    said = Side("the output", tokenizers[1], config.target_vocab_size, longest - 1, specials)
    source_ids = read.ids(source)
    if not source_ids:
        raise UserError("the sentence is empty; there is nothing to look at")
    notes: list[str] = []
    with undisturbed(inner):
        answers, tree = watch(inner, source_ids, replace(search, best=search.beam), said)
        if target is None:
            target_ids = list(answers[0].tokens)
            if not answers[0].finished:
                notes.append(f"The answer did not end within {len(target_ids)} tokens.")
        else:
            target_ids = said.ids(target)
        seen = look_at_pair(inner, source_ids, target_ids)
    if not all(np.isfinite(x).all() for m in seen.maps for x in (m.q, m.k, m.v, m.doutputs)):
        raise UserError("the model's numbers are not finite (NaN or infinite): nothing to draw")
    source_labels = read.labels(source_ids, source)
    unknown = dict.fromkeys(label.text for label in source_labels if label.kind == "unknown")
    if unknown:
        notes.append(f"Never seen in training: {' '.join(unknown)}")
    wanted = [*target_ids, eos]
    record = Record(
        title=f"{read.text(source_ids)} → {said.text(target_ids)}",
        model=_describe(inner),
        source=tuple(source_labels),
        target=tuple(said.labels([config.bos_token_id, *target_ids])),
        maps=seen.maps,
        loss=seen.loss,
        steps=steps_of(seen.logits, wanted, range(len(wanted)), said),
        tree=tree,
        notes=tuple(notes),
    )
    return Picture(record)


def _parts(
    model: Trained | Seq2Seq,
) -> tuple[Seq2Seq, tuple[Tokenizer | None, Tokenizer | None], SearchConfig]:
    if isinstance(model, Seq2Seq):
        return model, (None, None), SearchConfig()
    return model.model, (model.source, model.target), model.search


def _describe(model: Seq2Seq) -> str:
    c = model.config
    count = sum(parameter.data.size for parameter in model.parameters())
    return (
        f"{c.encoder_layers} encoder and {c.decoder_layers} decoder layers, "
        f"{c.num_attention_heads} heads of width {c.head_width}, {count:,} parameters"
    )
