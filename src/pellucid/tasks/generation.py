"""Base class of tasks that generate text: searched, sampled or streamed answers."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import from_mapping, nearest
from pellucid.core.vjp import unobserved
from pellucid.data.tokenizers import settled
from pellucid.generation import (
    GREEDY,
    Constraints,
    Decodes,
    SampleConfig,
    SearchConfig,
    compile_model,
    sample,
    sample_stream,
    search,
)
from pellucid.models.decoding import Hypothesis, limits_of
from pellucid.models.model import choices
from pellucid.models.prefix import NEVER, Prefix
from pellucid.models.quantize import Arithmetic
from pellucid.nn import Recorder
from pellucid.system.language import plural
from pellucid.tasks.passage import Passage, lines, sentences
from pellucid.tasks.task import TEXTS_AT_ONCE, Task, check_text, checked_texts, similar

_log = logging.getLogger(__name__)

MOST_SCORED = 2**22
"""Upper limit for the size of arrays (logits, attention) when answers are scored in one batch. One
answer alone may exceed it."""

SETTINGS: dict[str, Any] = {
    field.name: kind
    for kind in (SearchConfig, Constraints, SampleConfig)
    for field in fields(kind)
    if field.name != "constraints"
} | {"max_length": SearchConfig, "prefix": str}
"""The settings that `generate` takes, and the class of each."""
ALIASES = {
    "num_beams": "beam",
    "num_return_sequences": "best",
    "max_new_tokens": "max_length",
    "min_new_tokens": "min_length",
    "no_repeat_ngram_size": "no_repeat_ngram",
}
"""transformers' names of settings that have another name in Pellucid; both are accepted."""
PEERS = {
    "beam_size": "beam",
    "num_hypotheses": "best",
    "max_decoding_length": "max_length",
    "sampling_temperature": "temperature",
    "sampling_topk": "top_k",
    "sampling_topp": "top_p",
}
"""CTranslate2's names of settings; the error about one suggests Pellucid's name."""


def own_names(settings: Mapping[str, Any], sampled: bool = False) -> dict[str, Any]:
    """Translate transformers' names of generation settings into Pellucid's.

    `num_return_sequences` becomes `samples` if one of these settings samples, or the task already
    does (`sampled`), else `best`. `do_sample` is removed: False takes a task back to search
    (`configured`); True, if no other setting samples, adds the default temperature. Raises
    `UsageError` for an unknown name, for two names of one setting, and for `do_sample = False` with
    a setting that samples.

    >>> own_names({"num_beams": 4, "do_sample": False})
    {'beam': 4}
    """
    found: dict[str, Any] = {}
    for given, value in settings.items():
        if (name := ALIASES.get(given, given)) in found:
            both = ", ".join(each for each in settings if ALIASES.get(each, each) == name)
            raise UsageError(f"{both} are one setting: leave one out")
        if name not in SETTINGS and name != "do_sample":
            known = (*SETTINGS, *ALIASES)
            other = f"; here it is {PEERS[name]}" if name in PEERS else nearest(name, known)
            raise UsageError(f"no setting {name}{other}; there are: {', '.join(SETTINGS)}")
        found[name] = value
    samples = found.pop("do_sample", None)
    sampled = sampled and samples is not False
    if "num_return_sequences" in settings and (
        sampled or samples or any(SETTINGS[name] is SampleConfig for name in found)
    ):
        if "samples" in found:
            raise UsageError("num_return_sequences, samples are one setting: leave one out")
        found["samples"] = found.pop("best")
    sampling = [name for name in found if SETTINGS[name] is SampleConfig]
    if samples is False and sampling:
        raise UsageError(f"do_sample = False, but {', '.join(sampling)} samples: leave one out")
    if samples and not sampling:
        found["temperature"] = SampleConfig.temperature
    return found


def sampling_of(
    search: SearchConfig,
    given: Mapping[str, Any],
    saved: SearchConfig,
    before: SampleConfig | None = None,
) -> SampleConfig:
    """Make sampling settings, with the length and the constraints of a search.

    given: names and values of `SampleConfig`. saved: the search that the user may have changed.
    before: settings that `given` changes; None: the defaults. Raises `UsageError` for a wrong
    value, and for a search whose beam, length penalty or number of answers would have no effect.
    """
    for name, idle in (("best", 1), ("beam", 1), ("length_penalty", 0)):
        if (value := getattr(search, name)) not in (idle, getattr(saved, name)):
            raise UsageError(
                f"{name} = {value} is of a search, and these answers are sampled: leave it out "
                "(`samples` draws several answers)"
            )
    plain = replace(
        before or SampleConfig(), max_length=search.max_length, constraints=search.constraints
    )
    return from_mapping(SampleConfig, given, "generate", plain)


def piece_numbers(number: int, pieces: int) -> list[int]:
    """Return the numbers that key the random draws of a text's pieces.

    The first piece has the number of the text.

    >>> piece_numbers(3, 2)
    [3, 16777219]
    """
    return [(number + place * 2**24) % 2**32 for place in range(pieces)]


def join_answers(passage: Passage, pieces: Sequence[Sequence[Answer]]) -> list[Answer]:
    """Join the first answers to all pieces of a text, then the second ones, and so on.

    There are as many joined answers as the piece with the fewest answers has, and one for a text
    without pieces. An answer to a single piece keeps its tokens and score; a joined answer has
    none, and score 0.
    """
    if len(pieces) == 1:
        return [answer._replace(text=passage.joined([answer.text])) for answer in pieces[0]]
    return [
        Answer(
            passage.joined([answer.text for answer in some]),
            sum(answer.log_p for answer in some),
            all(answer.finished for answer in some),
        )
        for some in (zip(*pieces, strict=False) if pieces else [()])
    ]


class TooLongError(UserError):
    """Error for a text with more tokens than the model can read."""


class Answer(NamedTuple):
    """One answer to a text, with its log-probability."""

    text: str
    log_p: float
    """Σ log p of its tokens, and of the end if it was generated."""
    finished: bool
    """Whether it ended with the end token, and not at max_length or the model's longest answer."""
    tokens: tuple[int, ...] = ()
    """Token ids, without the end token."""
    score: float = 0.0
    """The score that ranks answers (`generation.Hypothesis`); log_p for sampled answers; 0 for an
    answer to several pieces."""


class TokenScores(NamedTuple):
    """Log-probabilities and attention of an answer of L tokens to a text of S tokens."""

    log_p: np.ndarray
    """(L + 1,): log-probability of each token given those before it, and of the end token."""
    weights: np.ndarray
    """(L + 1, S): attention to each source token, in the last decoder layer with attention, mean
    over heads. For a decoder alone the source is the text before the answer."""

    @property
    def alignment(self) -> list[int]:
        """For each of the L tokens, the index of the source token with the most attention.

        Empty if the source is.
        """
        return [int(i) for i in self.weights[:-1].argmax(axis=1)] if self.weights.size else []


class Opening(NamedTuple):
    """The tokens of a text to read, and how its answer must begin."""

    source: list[int]
    """Token ids of the text."""
    beginning: Prefix | None
    """Constraint on the beginning of the answer, or None."""
    text: str = ""
    """Text that precedes the answer when both are decoded; a decoder alone continues its text."""
    again: int = 0
    """Number of bytes of the text that are not read as tokens but generated again by the answer."""


TokenPair = tuple[Sequence[int], Sequence[int]]
"""Token ids of a text, and of an answer without begin and end."""


@dataclass(frozen=True, repr=False)
class GenerationTask(Task):
    """Base class of tasks whose model generates text, by search or sampling."""

    generates = True

    search: SearchConfig = GREEDY
    sampling: SampleConfig | None = None
    """Sampling settings; None: answers are searched for."""
    prefix: str = ""
    """Text that every answer begins with, except the empty answer to an empty text. It may end
    inside a word or a token. If an answer has several pieces, the joined answer begins with it."""
    arithmetic: Arithmetic = "float32"
    """Number type of the products in compiled decoding; int8 for a model stored in int8."""

    def __post_init__(self) -> None:
        for sentence in (one for line in lines(self.prefix) for one in sentences(line)):
            if sentence.strip():
                _ = self.beginning if sentence == self.prefix else self._begun(sentence)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "beginning"}

    def _begun(self, text: str, ends: int | None = None) -> Prefix | None:
        """Make the constraint that an answer begins with a text.

        None if every answer does. ends: the end token, if the text is the whole answer. Raises
        `UsageError` for a text that the model cannot generate.
        """
        written, closed_to = self.target.beginning(text)
        if not written:
            return None
        found = Prefix.of_text(
            written, self.target.spelled, self.never, self._frame(), closed_to, ends=ends
        )
        if (count := found.fewest[0]) >= NEVER:
            if unknown := self.target.unknown([text]):
                raise UsageError(
                    f"prefix holds {self.target.unit} that the model has no tokens for: "
                    + " ".join(map(repr, unknown))
                )
            raise UsageError(f"prefix {text!r} holds a token that the model never generates")
        asked, room = (self.sampling or self.search).max_length, self.max_new_tokens([])
        if count > min(asked, room):
            remedy = "allow longer answers (max_length) or give" if asked < room else "give"
            raise UsageError(
                f"prefix has {count} {plural(count, 'token')}, an answer at most "
                f"{min(asked, room)}: {remedy} a shorter prefix"
            )
        return found

    @cached_property
    def beginning(self) -> Prefix | None:
        """The constraint that answers begin with `prefix`, in any tokens that spell it."""
        return self._begun(self.prefix)

    @property
    def never(self) -> set[int]:
        """Tokens that are never generated inside an answer: suppressed ones and end tokens."""
        config = self.model.config
        return {config.eos_token_id, *config.end_token_ids, *config.suppress_tokens}

    def _frame(self) -> Sequence[int]:
        """Return the tokens without text that precede every answer."""
        return ()

    def warn_unfinished(self, count: int) -> None:
        """Log a warning that this many answers did not end; continued texts need no end."""
        if count and self.kind == "answer":
            _log.warning(
                f"answers cut at the longest length, before their end: {count}; train the model "
                "longer if they repeat themselves, else raise `max_length`"
            )

    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer, without the begin token.

        Some tokenizers of other programs put a token without text before every answer: it is
        included.
        """
        return [*self._frame(), *self.target.encode(answer)]

    @abstractmethod
    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens of an answer to a text, given as token ids."""

    def prompt_ids(self, source: Sequence[int]) -> list[int]:
        """Return the token ids that the model reads before it generates the answer."""
        return list(source)

    def opening(self, text: str) -> Opening:
        """Return the input tokens of a text, and the required beginning of its answer."""
        return Opening(self.source.encode(text), self.beginning)

    def openings(self, passage: Passage) -> list[Opening]:
        """Return the input tokens and the required beginning of the answer, for each piece."""
        return [self.opening(piece) for piece in passage.pieces]

    def prompts(
        self, rows: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> tuple[Packed, np.ndarray]:
        """Pack input tokens; return them with the first token that is fed for each answer.

        rows: token ids of the texts. numbers: the keys of their random draws.
        """
        first = np.full(len(rows), self.model.config.bos_token_id)
        return Packed.of([self.prompt_ids(row) for row in rows], numbers), first

    def decoder(self) -> Decodes:
        """Compile the decoder for search and sampling.

        It can be reused for many texts, as long as the weights do not change.
        """
        return compile_model(self.model, self.arithmetic)

    def decode(self, source: Sequence[int], generated: Sequence[int]) -> str:
        """Decode the tokens generated for a text."""
        return self.target.decode(generated)

    def _batch(self, pairs: Sequence[TokenPair]) -> Batch:
        """Make a batch of texts and answers in the form of training batches."""
        sources, answers = zip(*pairs, strict=True)
        source, first = self.prompts(sources, range(len(pairs)))
        both, eos = zip(first, answers, strict=True), self.model.config.eos_token_id
        return Batch(source, Packed.of([[begin, *answer, eos] for begin, answer in both]))

    def _log_p(self, batch: Batch) -> np.ndarray:
        """Return log p (T, V) at every position of teacher-forced answers."""
        rows, _, _ = self.model.predicting(batch, None, inference=True)
        log_p: np.ndarray = ops.log_softmax(to_host(self.model.output(rows)))[0]
        return log_p

    def _token_scores(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        """Compute `token_scores` for pairs that fit into one batch."""
        batch = self._batch(pairs)
        with Recorder() as recorder:
            log_p = self._log_p(batch)
        wanted = batch.target.without_first()
        log_p = choices(log_p, self.model.config)
        chosen = np.split(log_p[np.arange(len(log_p)), wanted.tokens], wanted.cu_seqlens[1:-1])
        weights = [np.zeros((len(answer) + 1, len(source))) for source, answer in pairs]
        maps = [each for name, each in recorder.maps.items() if name.startswith("decoder")]
        if maps:  # the last layer's to the encoder's rows; of a decoder alone to the text's own
            alone = "encoder" not in self.model.entrances
            means = to_host(maps[-1].weights).mean(axis=1)
            for own, mean, read in zip(weights, means, batch.source.lengths, strict=True):
                rows, columns = own.shape
                row, column = (read, read + 1 - columns) if alone else (0, 0)
                own[...] = mean[row : row + rows, column : column + columns]
        return [TokenScores(*both) for both in zip(chosen, weights, strict=True)]

    def likeliest(
        self, source: Sequence[int], answer: Sequence[int], count: int
    ) -> list[tuple[float, list[tuple[int, float]]]]:
        """Score each token of a given answer, and find the likeliest ones in its place.

        Return (log p, the `count` likeliest) of each token; the likeliest are (id, log p) at the
        same position. There is no entry for the end of the answer.
        """
        log_p = choices(self._log_p(self._batch([(source, answer)])), self.model.config)
        orders = np.argsort(-log_p, kind="stable")[:, :count]
        return [
            (float(row[token]), [(int(i), float(row[i])) for i in order])
            for token, row, order in zip(answer, log_p, orders, strict=False)
        ]

    def token_scores(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        """Compute the scores of given answers to texts, both as token ids.

        Return them in the order of the pairs. Pairs of similar length are computed together, up to
        128, fewer if the arrays would exceed `MOST_SCORED`.
        """
        vocabulary: int = getattr(self.model.config, self.vocabularies[-1])

        def cost(i: int) -> int:
            length = len(pairs[i][0]) + len(pairs[i][1])
            return length**2 + length * vocabulary

        order = sorted(range(len(pairs)), key=cost, reverse=True)
        found: dict[int, TokenScores] = {}
        while order:
            count = max(1, min(MOST_SCORED // (cost(order[0]) + 1), TEXTS_AT_ONCE))
            together, order = order[:count], order[count:]
            scores = self._token_scores([pairs[i] for i in together])
            found |= zip(together, scores, strict=True)
        return [found[i] for i in range(len(pairs))]

    def score(self, pairs: Iterable[tuple[str, str]]) -> list[float]:
        """Compute log p(answer, end | text) of (text, answer) pairs, in nats.

        For a decoder alone the answer is the text that follows. An answer that contains something
        unknown to the tokenizer, or a token that the model never generates, scores −inf. Raises
        `UserError` for a text or an answer that is too long, and for an empty text unless the model
        reads a token there; `UsageError` for a sequence in `pairs` that is not two str.

        >>> model.score([("attention", "ə t ˈɛ n ʃ ə n")])  # doctest: +SKIP
        [-0.1375]
        """
        ids, written, read = [], [], list[str]()
        each: Any = pairs if isinstance(pairs, Iterable) and not isinstance(pairs, str) else [pairs]
        for pair in each:
            texts = pair if isinstance(pair, tuple | list) else ()
            if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
                raise UsageError(f"score takes a list of pairs (text, answer); got {pair!r}")
            ids.append(self._pair(*pair))
            read.append(pair[0])
            written.append(not self.target.unknown([pair[1]]))
        self.warn_unread(read)
        return [
            float(scores.log_p.sum()) if known else -math.inf
            for scores, known in zip(self.token_scores(ids), written, strict=True)
        ]

    def _pair(self, text: str, answer: str) -> tuple[list[int], list[int]]:
        """Tokenize a text and an answer.

        Raises `UserError` if one of them is too long, or the model reads no token of the text.
        """
        self.check_length(text)
        source, target = self.source.encode(text), self.answer_ids(answer)
        if not self.prompt_ids(source):
            raise UserError("an empty text has no answer")
        if len(target) > (room := self.max_new_tokens(source)):
            raise UserError(
                f"an answer of {len(target)} {plural(len(target), 'token')}, more than the {room} "
                "that this model can write; shorten it"
            )
        return source, target

    def _read(self, text: str, answer: str | None) -> dict[str, Sequence[int]]:
        """Run the model on a text and an answer.

        Return the token ids that each stack read. Without an answer the best one is generated
        first.
        """
        source, target = self._pair(text, answer or "")
        if answer is None:
            with unobserved():
                target = list(self.answer_pieces([Passage([text], ["", ""])], [0])[0][0].tokens)
        self.token_scores([(source, target)])
        batch = self._batch([(source, target)])
        return {name: text.tokens.tolist() for name, text in self.model.reads(batch).items()}

    def configured(self, **settings: Any) -> Self:
        """Return the task with some settings of search, sampling or the prefix changed.

        The names are those of `pellucid generate`: beam, best, max_length, min_length,
        length_penalty, repetition_penalty, no_repeat_ngram and prefix; any of temperature, top_k,
        top_p, min_p, seed and samples switches from search to sampling. forced_bos_token_id is a
        setting too. The names of transformers' `generate` are accepted (`ALIASES`, do_sample; see
        `own_names`). Raises `UsageError` for an unknown name, a wrong value, a prefix that the
        model cannot generate, or `best` above 1 with sampling.
        """
        if not settings:
            return self
        before = None if settings.get("do_sample") is False else self.sampling
        settings = own_names(settings, self.sampling is not None)
        given: dict[type, dict[str, Any]] = {SearchConfig: {}, Constraints: {}, SampleConfig: {}}
        for name in settings.keys() - {"prefix"}:
            given[SETTINGS[name]][name] = settings[name]
        wanted = {**given[SearchConfig], "constraints": given[Constraints]}
        search = from_mapping(SearchConfig, wanted, "generate", self.search)
        sampling, prefix = before, settings.get("prefix", self.prefix)
        if given[SampleConfig] or sampling is not None:
            sampling = sampling_of(search, given[SampleConfig], self.search, sampling)
        check_text(prefix, "prefix")
        return replace(self, search=search, sampling=sampling, prefix=prefix)

    def check_length(self, text: str) -> None:
        """Raise `TooLongError` for a text with more tokens than the model can read."""
        ids = self.source.encode(text)
        if len(ids) > self.max_source_length:
            raise TooLongError(
                f"{len(ids)} tokens, more than the {self.max_source_length} that this model can "
                "read; split it"
            )

    def passage(self, text: str) -> Passage:
        """Split a text into pieces that are answered one by one.

        Here the whole text is one. Raises `TooLongError` for a text that is too long, and
        `UserError` for one of which at least half was not seen in training.
        """
        self.check_length(text)
        self.check_seen(text)
        return Passage([text], ["", ""])

    @property
    def reads_words(self) -> bool:
        """Whether the model reads single words, one at a time; here it does not."""
        return False

    def generate(self, texts: Iterable[str | tuple[str, ...]], **settings: Any) -> list[str]:
        """Return the best answer to each text, or a sampled one.

        settings: changes for these texts, as in `configured`. A tuple is a text of several columns,
        such as a word and its features. Warnings list what training never saw, and count the
        answers that did not end. Raises `UserError` for a text that cannot be answered, for example
        because a sentence has more than `max_source_length` tokens; `UsageError` for wrong
        settings, and if `settings` ask for several answers per text.

        >>> model.generate(["attention"], beam=4, length_penalty=0.6)  # doctest: +SKIP
        ['ə t ˈɛ n ʃ ə n']
        """
        texts, task = checked_texts(texts, "generate", self.columns), self.configured(**settings)
        self.warn_unread(texts)
        asked = "best" if task.sampling is None else "samples"
        count = getattr(task.sampling or task.search, asked)
        if count > 1 and settings.keys() & {asked, "num_return_sequences"}:
            raise UsageError(
                f"generate returns one answer to each text, got {asked} = {count}; "
                "generate_answers returns all of them"
            )
        found = [answers[0] for answers in task.generate_answers(texts)]
        task.warn_unfinished(sum(not answer.finished for answer in found))
        return [answer.text for answer in found]

    def generate_answers(
        self,
        texts: Iterable[str | tuple[str, ...]],
        numbers: Sequence[int] | None = None,
        decoder: Callable[[], Decodes] | None = None,
        **settings: Any,
    ) -> list[list[Answer]]:
        """Return the best answers to each text, best first; samples as they were drawn.

        A text is answered in pieces (`passage`): the first answers to all pieces are joined, then
        the second ones, and so on. An answer to several pieces has the sum of their log p, no
        tokens, and score 0. A text without pieces has one answer, the text that is copied; a piece
        of which the model reads no token has one empty answer.

        settings: changes for these texts, as in `configured`. At most `best` answers are returned,
        or `samples` when sampling; fewer if fewer were found. numbers: keys of the random draws of
        the texts, default 0, 1, ... decoder: returns a decoder that was compiled before, for many
        calls with an unchanged model (`functools.cache(task.decoder)`).

        Raises `UserError` for a text that cannot be answered, for example because a sentence has
        more than `max_source_length` tokens; `UsageError` for wrong settings, and unless there is
        one of `numbers` for each text.
        """
        texts = checked_texts(texts, "generate_answers", self.columns)
        task = self.configured(**settings)
        names = range(len(texts)) if numbers is None else numbers
        if len(names) != len(texts):
            raise UsageError(f"expected {len(texts)} numbers, one for each text; got {len(names)}")
        passages = [task.passage(text) for text in texts]
        found = iter(task.answer_pieces(passages, names, decoder))
        return [join_answers(own, list(islice(found, len(own.pieces)))) for own in passages]

    def answer_pieces(
        self,
        passages: Sequence[Passage],
        numbers: Sequence[int],
        decoder: Callable[[], Decodes] | None = None,
    ) -> list[list[Answer]]:
        """Return the answers to each piece of numbered texts, in the order of the pieces.

        A piece of which the model reads no token has one empty answer. Pieces of similar length are
        computed together. numbers, decoder: as in `generate_answers`.
        """
        keys: list[int] = []
        for number, own in zip(numbers, passages, strict=True):
            keys += piece_numbers(number, len(own.pieces))
        openings = [opening for own in passages for opening in self.openings(own)]
        found = {i: [Answer("", 0.0, True)] for i in range(len(openings))}
        read = [self.prompt_ids(opening.source) for opening in openings]
        compiled = (decoder or self.decoder)() if any(read) else None
        for together in similar(read):
            some = self._answers(
                compiled, [openings[i] for i in together], [keys[i] for i in together]
            )
            found |= zip(together, some, strict=True)
        return list(found.values())

    def stream(
        self,
        text: str,
        number: int = 0,
        decoder: Callable[[], Decodes] | None = None,
        **settings: Any,
    ) -> Iterator[str]:
        """Yield one answer piece by piece while it is generated, greedily or by sampling.

        A character that consists of several tokens is yielded whole. number: key of the random
        draws. `decoder`, `settings` and errors are as in `generate_answers`; also raises
        `UsageError` for beam or best other than 1. Errors are raised when the first part is
        requested. A beam in the task's own `search` is not used, and `samples` above 1 have no
        effect. A warning says that the answer did not end.
        """
        check_text(text, "stream")
        given = own_names(settings, self.sampling is not None)
        if any(given.get(name, 1) != 1 for name in ("beam", "best")):
            raise UsageError("stream writes a greedy or a sampled answer: leave out beam and best")
        task, compiled = self.configured(**settings), cache(decoder or self.decoder)
        passage = task.passage(text)
        yield from passage.kept[0]
        keys = piece_numbers(number, len(passage.pieces))
        for place, opening in enumerate(task.openings(passage)):
            answer = ""
            for new in task._streamed(opening, keys[place], compiled):
                answer += new
                yield new
            yield from passage.behind(place, answer)

    def _streamed(
        self, opening: Opening, key: int, decoder: Callable[[], Decodes]
    ) -> Iterator[str]:
        """Yield the answer to one piece of a text while it is generated."""
        source, beginning, *_ = opening
        if not self.prompt_ids(source):
            return
        length, constraints = self.search.max_length, self.search.constraints
        greedy = SampleConfig(top_k=1, max_length=length, constraints=constraints)
        generated: list[int] = []
        shown = ""
        prompt, first = self.prompts([source], [key])
        (most,) = limits_of(decoder(), prompt, length, [beginning])
        for new in sample_stream(decoder(), prompt, self.sampling or greedy, [beginning], first):
            generated += [token for _, token in new]
            whole = settled(self.decode(source, generated), self.target)
            if len(whole) > len(shown):
                yield whole[len(shown) :]
                shown = whole
        if rest := self.decode(source, generated)[len(shown) :]:
            yield rest
        self.warn_unfinished(int(len(generated) == most))

    def _answers(
        self, decoder: Any, openings: Sequence[Opening], numbers: Sequence[int]
    ) -> list[list[Answer]]:
        """Search or sample answers to openings; return them for each opening.

        Those of a search are in order, best first.
        """
        many = 1 if self.sampling is None else self.sampling.samples
        rows = [opening.source for opening in openings]
        drawn = [row for row in rows for _ in range(many)]
        # Each draw has another number, far from those of the texts beside it; the first its own.
        numbers = [(n + i * 2654435761) % 2**32 for n in numbers for i in range(many)]
        source, first = self.prompts(drawn, numbers)
        prefixes = [opening.beginning for opening in openings for _ in range(many)]
        if self.sampling is not None:
            sampled = sample(decoder, source, self.sampling, prefixes, first)
            longest = limits_of(decoder, source, self.sampling.max_length, prefixes).tolist()
            found = [
                [Hypothesis(own, 0.0, 0.0, len(own) < most)]
                for own, most in zip(sampled, longest, strict=True)
            ]
            whole = [h._replace(score=h.log_p) for (h,) in self._with_own_log_p(drawn, found)]
            found = [whole[i : i + many] for i in range(0, len(whole), many)]
        else:
            found = search(decoder, source, self.search, prefixes, first)
            constraints = self.search.constraints
            if constraints.repetition_penalty != 1.0 or constraints.forced_bos_token_id is not None:
                found = self._with_own_log_p(rows, found)
        return [
            [
                Answer(self.decode(row, h.tokens), h.log_p, h.finished, h.tokens, h.score)
                for h in best
            ]
            for row, best in zip(rows, found, strict=True)
        ]

    def _with_own_log_p(
        self, rows: Sequence[list[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Replace log p of hypotheses by the model's, without the effect of constraints.

        rows: the token ids of each text.
        """
        pairs = [(row, h.tokens) for row, best in zip(rows, found, strict=True) for h in best]
        each = iter(self.token_scores(pairs))

        def log_p(h: Hypothesis) -> float:
            own = next(each).log_p
            return float(own.sum() if h.finished else own[:-1].sum())

        return [[h._replace(log_p=log_p(h)) for h in best] for best in found]
