"""What there is to see of an encoder-decoder: a sentence read, another said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pellucid.core.errors import UserError
from pellucid.generation import SearchConfig
from pellucid.models.seq2seq import Seq2Seq
from pellucid.view.generation import watch
from pellucid.view.look import look_at_pair, steps_of
from pellucid.view.record import Record
from pellucid.view.side import Side, Text, specials_of

if TYPE_CHECKING:
    from pellucid.data.tokenizers import TokenizerLike


def pair(
    model: Seq2Seq,
    tokenizers: tuple[TokenizerLike | None, TokenizerLike | None],
    source: Text,
    target: Text | None,
    search: SearchConfig,
) -> Record:
    """Return the record of a sentence and its answer, the model's own unless given.

    Raises `UserError` for a sentence without tokens, or a text that does not fit the model.
    """
    config = model.config
    longest, specials = config.max_position_embeddings, specials_of(config)
    read = Side("the sentence", tokenizers[0], config.source_vocab_size, longest, specials)
    said = Side("the output", tokenizers[1], config.target_vocab_size, longest - 1, specials)
    source_ids = read.ids(source)
    if not source_ids:
        raise UserError("the sentence is empty; there is nothing to look at")
    target_ids = None if target is None else said.ids(target)
    search = replace(search, best=search.beam)
    (begin,) = said.labels([config.bos_token_id])
    answers, tree = watch(model, source_ids, search, said, begin)
    notes: list[str] = []
    end = [config.eos_token_id]
    if target_ids is None:
        target_ids = list(answers[0].tokens)
        if not answers[0].finished:
            notes.append(f"The answer did not end within {len(target_ids)} tokens.")
            end = []
    wanted = [*target_ids, *end]
    seen = look_at_pair(model, source_ids, [config.bos_token_id, *target_ids], wanted)
    return Record(
        title=f"{read.text(source_ids)} → {said.text(target_ids)}",
        model=_describe(model),
        source=tuple(read.labels(source_ids, source)),
        target=(begin, *said.labels(target_ids, target or ())),
        maps=seen.maps,
        loss=seen.loss,
        steps=steps_of(seen.logits, wanted, range(len(wanted)), said),
        tree=tree,
        notes=tuple(notes),
    )


def _describe(model: Seq2Seq) -> str:
    c = model.config
    count = sum(parameter.data.size for parameter in model.parameters())
    return (
        f"{c.encoder_layers} encoder and {c.decoder_layers} decoder layers, "
        f"{c.num_attention_heads} heads of width {c.head_width}, {count:,} parameters"
    )
