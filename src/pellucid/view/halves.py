"""What there is to see of one half: a decoder that continues a text, an encoder that fills it in.

`trained` is the model with its tokenizer, as `pellucid.load` returns it, or None: then ids only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.generation import SearchConfig
from pellucid.models.causal_lm import CausalLM
from pellucid.models.masked_lm import MaskedLM
from pellucid.view.generation import watch
from pellucid.view.look import look_at_text, steps_of
from pellucid.view.record import Record
from pellucid.view.side import Side, Text, specials_of

MASK = "[MASK]"


def continuation(
    model: CausalLM, trained: Any, source: Text, target: Text | None, search: SearchConfig
) -> Record:
    """Return the record of a text and what follows it, the model's own choice unless given.

    All stands on the target's side: rows are tokens read, each looking for the next. A bare model
    reads the text, then the begin token, as a training pair stands. Raises `UserError` for texts
    that do not fit the model, or where there is nothing to read.
    """
    config = model.config
    longest = config.max_position_embeddings - 1 - (trained is None or trained.begins)
    tokenizer = None if trained is None else trained.tokenizer
    side = Side("the sentence", tokenizer, config.vocab_size, longest, specials_of(config))
    ids = side.ids(source)
    decodes, asked = (model, ids) if trained is None else (trained.speaker(), trained.opening(ids))
    opening = [*ids, config.bos_token_id] if trained is None else asked
    room = config.max_position_embeddings - len(opening)
    given = None if target is None else replace(side, name="the output", longest=room).ids(target)
    if not opening or not (ids or given):
        raise UserError("the sentence is empty; there is nothing to look at")
    opened = side.labels(opening)
    at = 0 if trained is None else len(opening) - len(ids)
    opened[at : at + len(ids)] = side.labels(ids, source)
    search = replace(search, best=search.beam)
    answers, tree = watch(decodes, asked, search, side, opened[-1])
    said = list(answers[0].tokens) if given is None else given
    notes: tuple[str, ...] = ()
    wanted = [*said, config.eos_token_id]
    if given is None and not answers[0].finished:
        notes = (f"The continuation did not end within {len(said)} tokens.",)
        wanted = said
    places = range(len(opening) - 1, len(opening) - 1 + len(wanted))
    seen = look_at_text(model, [*opening, *said], places, wanted)
    return Record(
        title=f"{side.text(ids)} → {side.text(said)}",
        model=_describe(model, "decoder"),
        source=(),
        target=(*opened, *side.labels(said, target or ())),
        maps=seen.maps,
        loss=seen.loss,
        steps=steps_of(seen.logits, wanted, places, side),
        tree=tree,
        notes=notes,
    )


def guesses(model: MaskedLM, trained: Any, source: Text, target: Text | None) -> Record:
    """Return the record of a text and what stands where it is masked.

    `target` has a token for each mask; without it they are the likeliest ones. A text without a
    mask is predicted token by token in plain sight. Raises `UserError` for a text that does not fit
    the model, an empty one, or a `target` of another number of tokens.
    """
    config = model.config
    tokenizer = None if trained is None else trained.tokenizer
    specials = specials_of(config) | {config.mask_id: MASK}
    longest = config.max_position_embeddings - 2
    side = Side("the sentence", tokenizer, config.vocab_size, longest, specials)
    ids = trained.encode(source) if trained and isinstance(source, str) else side.ids(source)
    if not ids:
        raise UserError("the sentence is empty; there is nothing to look at")
    text = [config.bos_token_id, *ids, config.eos_token_id]
    masked = [place for place, token in enumerate(text) if token == config.mask_id]
    notes: list[str] = []
    places, wanted = masked, []
    if target is not None:
        wanted = replace(side, name="the output").ids(target)
        if len(wanted) != len(masked):
            raise UserError(
                f"the output has {len(wanted)} tokens, the sentence {len(masked)} of {MASK}; each "
                "stands for one token"
            )
    if model.head is None:
        places, wanted = [], []
        notes.append("This model predicts no tokens, so there is no loss and no gradient.")
    elif not masked:
        places, wanted = list(range(1, len(text) - 1)), ids
        notes.append(f"Nothing is masked: every token is seen while it is predicted. Try {MASK}.")
    elif target is None:
        wanted = model(Packed.of([text]))[np.array(masked)].argmax(axis=1).tolist()
    seen = look_at_text(model, text, places, wanted)
    filled = dict(zip(places, wanted, strict=True))
    whole = side.text([filled.get(place, ids[place - 1]) for place in range(1, len(text) - 1)])
    written = source.replace(MASK, "\ufffc") if isinstance(source, str) else source
    begin, end = side.labels([text[0]]), side.labels([text[-1]])
    shown = source if isinstance(source, str) else side.text(ids)
    return Record(
        title=f"{shown} → {whole}" if masked and places else shown,
        model=_describe(model, "encoder"),
        source=(*begin, *side.labels(ids, written), *end),
        target=(),
        maps=seen.maps,
        loss=seen.loss,
        steps=steps_of(seen.logits, wanted, places, side),
        notes=tuple(notes),
    )


def _describe(model: CausalLM | MaskedLM, half: str) -> str:
    c = model.config
    count = sum(parameter.data.size for parameter in model.parameters())
    return (
        f"{c.num_hidden_layers} {half} layers, {c.num_attention_heads} heads of width "
        f"{c.head_width}, {count:,} parameters"
    )
