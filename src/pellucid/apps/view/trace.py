"""Record a model's attention on a sentence: one trace function per kind of task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pellucid import nn
from pellucid.apps.view.backward import check_loss
from pellucid.apps.view.capture import capture, frozen, run, steps_of
from pellucid.apps.view.picture import Picture
from pellucid.apps.view.record import Record, Side, Text, select_cell
from pellucid.apps.view.runnable import READER, runnable
from pellucid.apps.view.search_tree import search_tree
from pellucid.apps.view.strip import parts_of
from pellucid.apps.view.tokens import UNKNOWNS, Input, Label, Vocabulary, legible, specials_of
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.generation import Decodes, SearchConfig
from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.classifier import Classifier
from pellucid.models.prefix import Prefix
from pellucid.ops.activations import ACTIVATIONS
from pellucid.tasks import task_of
from pellucid.tasks.masked_lm import MASK

KOREAN = {"encoder": "인코더", "decoder": "디코더"}
EMPTY = "the sentence is empty; there is nothing to draw"
NO_HEAD = Text(
    "This model predicts no tokens, so there is no loss and no gradient.",
    "이 모델은 토큰을 예측하지 않으므로 손실도 기울기도 없습니다.",
)
NO_MASK = Text(
    f"Nothing is masked: every token is predicted while the model sees it. Try {MASK}.",
    f"마스크가 없어 모델이 모든 토큰을 보면서 예측합니다. {MASK}를 넣어 보세요.",
)


def attention(
    model: Any,
    source: Input,
    target: Input | None = None,
    *,
    search: SearchConfig | None = None,
    ends: bool = True,
    run: bool = False,
    whole: bool = True,
) -> Picture:
    """Record the attention of a model while it reads `source` and generates `target`.

    `model` is a task with its tokenizers (as `pellucid.load` returns), which takes texts or token
    ids, or a bare model, which takes token ids only, without begin and end tokens. Without `target`
    the answer is the best that the model generates, with `search` (default: the settings saved with
    the model, or greedy search for a bare one). A causal language model continues `source`. A
    masked language model predicts the masked tokens of `source`, or all tokens if none is masked;
    `target` has one token per mask. A classifier labels `source` or each of its tokens; `target`
    has the labels.

    The recorded gradients are those of the loss Σ −log p of the target tokens. The end token of an
    answer or continuation is one of them, unless `ends` is False for a given `target` or the
    generated one did not end. The model is not changed.

    With `run` the page also holds the model, and computes in the browser. With `whole=False` the
    record is without the other parts of the forward pass and without the gradient check: several
    times faster.

    Raises `UserError` for an empty sentence (a causal language model may have one with a `target`),
    a text longer than the model's positions, unknown ids, a `target` with another number of tokens
    than there are masks or labels, a model with a part that the page cannot show or `run`,
    non-finite numbers, and an ensemble.

    >>> from pellucid.models import Seq2SeqConfig
    >>> model = Seq2Seq(Seq2SeqConfig(11, 13, d_model=8, num_attention_heads=2, ffn_dim=17))
    >>> picture = attention(model, [5, 6, 7], [4, 8])
    >>> picture.record.layers("cross")[0].probabilities.shape
    (2, 3, 3)
    """
    pipeline: Any = None if isinstance(model, nn.Module) else model
    inner: Any = model if pipeline is None else pipeline.model
    task = task_of(model)
    if getattr(pipeline, "others", ()):
        raise UserError("the page shows one model, not an ensemble: give it one of them")
    SHOWN.read(inner)
    inner = frozen(inner)
    pipeline = None if pipeline is None else replace(pipeline, model=inner)
    record = TRACES[task.name](inner, Asked(pipeline, source, target, search, ends, whole))
    if not all(np.isfinite(x).all() for m in record.maps for x in (m.q, m.k, m.v, m.doutputs)):
        raise UserError("the model's numbers are not finite (NaN or infinite): nothing to draw")
    return Picture(
        _with_unknown(replace(record, title=legible(record.title))),
        runnable(model, source if isinstance(source, str) else "") if run else None,
    )


SHOWN = replace(
    READER, name="the page of attention", settings={**READER.settings, "activation": ACTIVATIONS}
)


class Asked(NamedTuple):
    """The arguments of `attention` for a trace function, besides the model."""

    pipeline: Any
    """The task, with its tokenizers and search settings; None for a bare model."""
    source: Input
    target: Input | None
    search: SearchConfig | None = None
    ends: bool = True
    whole: bool = True


def trace_seq2seq(model: Seq2Seq, asked: Asked) -> Record:
    """Record an encoder-decoder that reads a sentence and answers it.

    Without `asked.target` the answer is generated. The model must be `frozen`. Raises `UserError`
    for an empty sentence and for a text that does not fit the model.
    """
    config, (pipeline, source, target, _, _, whole) = model.config, asked
    longest, specials = config.max_position_embeddings, specials_of(config)
    tokenizers = (None, None) if pipeline is None else (pipeline.source, pipeline.target)
    source_side = Vocabulary(
        "the sentence", tokenizers[0], config.source_vocab_size, longest, specials
    )
    target_side = Vocabulary(
        "the output", tokenizers[1], config.target_vocab_size, longest - 1, specials
    )
    if pipeline and pipeline.reads_words and isinstance(source, str):
        source = next(iter(pipeline.split(source).pieces), source)
    source_ids = source_side.ids(source)
    if not source_ids:
        raise UserError(EMPTY)
    # Tokens that the tokenizer of another program puts before every answer.
    framed = pipeline.answer_ids("") if pipeline and isinstance(target, str) else []
    target_ids = None if target is None else [*framed, *target_side.ids(target)]
    (begin,) = target_side.labels([config.bos_token_id])
    first = config.bos_token_id, begin
    # An int8 model searches as it answers elsewhere: by int8 products, which only the kernels have.
    int8 = pipeline is not None and pipeline.arithmetic == "int8"
    decoder = pipeline.decoder() if int8 else model
    prefix = None if pipeline is None else pipeline.beginning
    answer, expected, found = _answered(
        decoder, source_ids, first, target_side, target_ids, prefix, asked
    )
    rest = len(framed)
    read = [config.bos_token_id, *answer]
    return _recorded(
        model,
        {"source": source_ids, "target": read},
        dict(enumerate(expected)),
        target_side,
        whole,
        title=f"{source_side.text(source_ids)} → {target_side.text(answer)}",
        source=tuple(source_side.labels(source_ids, source)),
        target=(
            begin,
            *target_side.labels(answer[:rest]),
            *target_side.labels(answer[rest:], target or ()),
        ),
        **found,
    )


def trace_causal_lm(model: CausalLM, asked: Asked) -> Record:
    """Record a causal language model that continues a text.

    Without `asked.target` the continuation is generated. All tokens are on the target side of the
    record; row i is computed from token i and predicts token i + 1. A bare model reads the text and
    then the begin token, as in training pairs. The model must be `frozen`. Raises `UserError` for
    an empty text without a target, and for a text that does not fit the model.
    """
    config, (pipeline, source, target, _, _, whole) = model.config, asked
    longest = config.max_position_embeddings - 1 - (pipeline is None or pipeline.begins)
    tokenizer = None if pipeline is None else pipeline.source
    vocabulary = Vocabulary(
        "the sentence", tokenizer, config.vocab_size, longest, specials_of(config)
    )
    ids, beginning = vocabulary.ids(source), None
    if pipeline and isinstance(source, str) and target is None:
        ids, beginning, *_ = pipeline.opening(source)
    decoder = model if pipeline is None else pipeline.decoder()
    opening = [*ids, config.bos_token_id] if pipeline is None else pipeline.prompt_ids(ids)
    room = config.max_position_embeddings - len(opening)
    given = (
        None if target is None else replace(vocabulary, name="the output", longest=room).ids(target)
    )
    if not opening or not (source or given):
        raise UserError(EMPTY)
    opened = vocabulary.labels(opening)
    at = 0 if pipeline is None else len(opening) - len(ids)
    opened[at : at + len(ids)] = vocabulary.labels(ids, source)
    first = opening[-1], opened[-1]
    generated, expected, found = _answered(
        decoder, opening[:-1], first, vocabulary, given, beginning, asked
    )
    places = range(len(opening) - 1, len(opening) - 1 + len(expected))
    text = [*opening, *generated]
    return _recorded(
        model,
        {"target": text},
        dict(zip(places, expected, strict=True)),
        vocabulary,
        whole,
        title=" → ".join(vocabulary.text(part) for part in (ids, generated) if len(part)),
        source=(),
        target=(*opened, *vocabulary.labels(generated, target or ())),
        **found,
    )


def trace_masked_lm(model: MaskedLM, asked: Asked) -> Record:
    """Record a masked language model that predicts the masked tokens of a text.

    `asked.target` has one token per mask; without it the most likely tokens are taken. In a text
    without a mask the loss is over all tokens, which the model can see. The model must be `frozen`.
    Raises `UserError` for an empty text, one that does not fit the model, and a target with more or
    fewer tokens than there are masks.
    """
    config, (pipeline, source, target, _, _, whole) = model.config, asked
    tokenizer = None if pipeline is None else pipeline.source
    specials = specials_of(config) | {config.mask_id: MASK}
    longest = config.max_position_embeddings - 2
    vocabulary = Vocabulary("the sentence", tokenizer, config.vocab_size, longest, specials)
    ids = (
        pipeline.token_ids(source)
        if pipeline and isinstance(source, str)
        else vocabulary.ids(source)
    )
    if not ids:
        raise UserError(EMPTY)
    text = [config.bos_token_id, *ids, config.eos_token_id]
    masked = [place for place, token in enumerate(text) if token == config.mask_id]
    notes: list[Text] = []
    places, expected = masked, []
    if target is not None:
        expected = replace(vocabulary, name="the output").ids(target)
        if len(expected) != len(masked):
            raise UserError(
                f"the output has {len(expected)} tokens, the sentence {len(masked)} of {MASK}; "
                "pass one token for each"
            )
    if model.head is None:
        places, expected = [], []
        notes.append(NO_HEAD)
    elif not masked:
        places, expected = list(range(1, len(text) - 1)), ids
        notes.append(NO_MASK)
    elif target is None:
        expected = model(Packed.of([text]))[np.array(masked)].argmax(axis=1).tolist()
    filled = dict(zip(places, expected, strict=True))
    filled_text = vocabulary.text(
        [filled.get(place, ids[place - 1]) for place in range(1, len(text) - 1)]
    )
    own = vocabulary.text(expected) if masked and pipeline and target is None else ""
    written: Input = source
    if pipeline and isinstance(source, str):
        written = pipeline.spaced(source).replace(MASK, "\ufffc")
    begin, end = vocabulary.labels([text[0]]), vocabulary.labels([text[-1]])
    shown = source if isinstance(source, str) else vocabulary.text(ids)
    if pipeline and not isinstance(source, str):  # no tokenizer writes the mask
        between = pairwise([0, *masked, len(text) - 1])
        shown = pipeline.spaced(MASK.join(vocabulary.text(text[a + 1 : b]) for a, b in between))
    return _recorded(
        model,
        {"source": text},
        filled,
        vocabulary,
        whole,
        title=f"{shown} → {filled_text}" if masked and places else shown,
        source=(*begin, *vocabulary.labels(ids, written), *end),
        target=(),
        notes=tuple(notes),
        answer=tuple(expected) if masked and places else None,
        # Another model gets this text, so it must tokenize into the same tokens again.
        own=own if own and vocabulary.ids(own) == expected else "",
    )


def trace_classifier(model: Classifier, asked: Asked) -> Record:
    """Record a classifier that labels a text, or each of its tokens.

    The model must be `frozen`. Raises `UserError` for a text that does not fit the model, an empty
    one, or a `target` that is no such label.
    """
    config, (pipeline, source, target, _, _, whole) = model.config, asked
    tokenizers = (None, None) if pipeline is None else (pipeline.source, pipeline.target)
    longest, specials = config.max_position_embeddings, specials_of(config)
    text = Vocabulary("the sentence", tokenizers[0], config.vocab_size, longest, specials)
    labels = Vocabulary("the output", tokenizers[1], config.label_vocab_size, longest, specials)
    ids = text.ids(source)
    if not ids:
        raise UserError(EMPTY)
    places = [-1] if config.labels == "text" else list(range(len(ids)))
    logits, _ = run(model, {"source": ids})
    expected = logits.argmax(axis=1).tolist()
    own = labels.text(expected)
    if target is not None:
        expected = labels.ids(target)
        if len(expected) != len(places) or logits[places, expected].min() == -np.inf:
            raise UserError(
                f"the output is {target!r}; pass one label that the model knows, or where it "
                "labels tokens one for each"
            )
    return _recorded(
        model,
        {"source": ids},
        dict(zip(places, expected, strict=True)),
        labels,
        whole,
        title=f"{source if isinstance(source, str) else text.text(ids)} → {labels.text(expected)}",
        source=tuple(text.labels(ids, source)),
        target=(),
        answer=tuple(expected),
        own=own,
    )


def _answered(
    model: Decodes,
    read: Sequence[int],
    first: tuple[int, Label],
    vocabulary: Vocabulary,
    given: list[int] | None,
    prefix: Prefix | None,
    asked: Asked,
) -> tuple[list[int], list[int], dict[str, Any]]:
    """Search for answers; return (answer, expected tokens, fields of the `Record`).

    The answer is `given`, or else the best that was found; the expected tokens are those of the
    answer and, if it ends, the end token. first: the token before the answer, and its label. The
    search is `asked.search`, or else that of the task; it returns all hypotheses of the beam.
    """
    search = asked.search or (SearchConfig() if asked.pipeline is None else asked.pipeline.search)
    widest = replace(search, best=search.beam)
    answers, tree = search_tree(model, read, widest, vocabulary, first, prefix)
    answer = list(answers[0].tokens) if given is None else given
    ended = answers[0].finished if given is None else asked.ends
    expected = [*answer, model.config.eos_token_id] if ended else answer
    notes: tuple[Text, ...] = ()
    if not ended:
        en = f"The answer did not end within {len(answer)} tokens."
        notes = (Text(en, f"토큰 {len(answer)}개 안에 답이 끝나지 않았습니다."),)
    own = vocabulary.text(list(answers[0].tokens)) if answers else ""
    found = {"tree": tree, "own": own, "notes": notes, "ended": ended, "answer": tuple(answer)}
    return answer, expected, found


def _recorded(
    model: Any,
    texts: Mapping[Side, Sequence[int]],
    expected: Mapping[int, int],
    vocabulary: Vocabulary,
    whole: bool,
    **labels: Any,
) -> Record:
    """Run the model on one sentence, forward and backward, and return the record.

    texts: the token ids that each stack reads. expected: row of the logits -> token that it should
    predict; if the model has several end tokens, the likeliest is expected at the end. With `whole`
    the record also has all parts of the forward pass, their gradients, and a finite-difference
    check at the cell that the page shows first. labels: the other fields of the record.
    """
    places, tokens = list(expected), list(expected.values())
    ends = [model.config.eos_token_id, *model.config.end_token_ids]
    if len(ends) > 1 and labels.get("ended") and tokens:
        row = capture(model, texts, places, tokens, maps=False).logits[places[-1]]
        likeliest = max(ends, key=lambda end: float(row[end]))  # as `models.model.choices` has it
        tokens = [*tokens[:-1], likeliest]
        expected = dict(zip(places, tokens, strict=True))
    score = partial(capture, texts=texts, places=places, expected=tokens)
    seen = score(model)
    steps = steps_of(seen.logits, tokens, places, vocabulary, model.config.suppress_tokens)
    record = Record(model=_describe(model), maps=seen.maps, loss=seen.loss, steps=steps, **labels)
    if not whole or not record.maps:
        return record
    parts = parts_of(model, seen.rows, texts)
    check = check_loss(model, score, select_cell(record)) if expected else None
    return replace(record, parts=parts, check=check)


def _with_unknown(record: Record) -> Record:
    """Add a note that lists characters of the sentence for which there is no token."""
    unknown = dict.fromkeys(
        label.text
        for label in (*record.source, *record.target)
        if label.kind == "unknown" and label.text not in UNKNOWNS
    )
    if not unknown:
        return record
    listed = " ".join(unknown)
    note = Text(f"Never seen in training: {listed}", f"학습에 없던 문자: {listed}")
    return replace(record, notes=(*record.notes, note))


def _describe(model: Any) -> Text:
    """Return the size of a model in one line, in both languages."""
    c = model.config
    count = sum(parameter.data.size for parameter in model.parameters())
    layers = [(getattr(c, depth), name) for name, depth in c.depths.items() if getattr(c, depth)]
    en = [f"{n} {name} layers" for n, name in layers]
    ko = [f"{KOREAN[name]} 레이어 {n}" for n, name in layers]
    return Text(
        f"{' and '.join(en).replace(' layers and', ' and')}, "
        f"{c.num_attention_heads} heads of width {c.head_width}, {count:,} parameters",
        f"{', '.join(ko)}, 헤드 {c.num_attention_heads}개(차원 {c.head_width}), "
        f"파라미터 {count:,}개",
    )


TRACES: dict[str, Callable[[Any, Asked], Record]] = {
    "pellucid-seq2seq": trace_seq2seq,
    "pellucid-causal-lm": trace_causal_lm,
    "pellucid-masked-lm": trace_masked_lm,
    "pellucid-classifier": trace_classifier,
}
"""The trace function of each kind of task, by the name of the task."""
