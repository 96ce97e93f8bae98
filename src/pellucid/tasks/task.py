"""Base class of tasks; a task is a model with its tokenizers."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from numbers import Integral
from textwrap import shorten
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from pellucid.core.array import to_host
from pellucid.core.batch import Batch
from pellucid.core.errors import UsageError, UserError
from pellucid.data.batches import Examples, encode_pairs, held_out_batches
from pellucid.data.given import pairs_of, table_of
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import BOS, EOS, KINDS, PAD, UNK, Tokenizer, TokenizerLike
from pellucid.generation import GREEDY, SearchConfig
from pellucid.models.config import StackConfig
from pellucid.models.quantize import Arithmetic
from pellucid.nn import Recorder
from pellucid.tasks.metrics import check_metric
from pellucid.tasks.scores import Kind, Scores, held_out_loss

_log = logging.getLogger("pellucid.tasks.quoting")  # its messages quote the texts of users

TEXTS_AT_ONCE = 128


def token_error(config: StackConfig) -> str | None:
    """Describe how a config's special token ids differ from the tokenizers'; None if they agree."""
    ids = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
    if ids == (PAD, BOS, EOS):
        return None
    return (
        f"pad_token_id, bos_token_id and eos_token_id must be {PAD}, {BOS} and {EOS}, as in every "
        f"tokenizer; got {', '.join(map(str, ids))}"
    )


def check_text(text: object, what: str) -> None:
    """Raise `UsageError` for an argument that is not a single text.

    what: name of the method or argument, for the message.
    """
    if not isinstance(text, str):
        raise UsageError(f"{what}: expected one text, a str; got {type(text).__name__}")


def check_best(best: int) -> None:
    """Raise `UsageError` if the number of guesses is not a whole number, or is below 1."""
    if not isinstance(best, Integral) or best < 1:
        raise UsageError(f"best must be at least 1, a whole number; got {best!r}")


def checked_texts(texts: Iterable[str | tuple[str, ...]], method: str, columns: int) -> list[str]:
    """Check the texts given to a method; return them as a list of strings.

    A tuple is a text of several columns, such as a pair of texts, or a text and its features; it
    becomes one string, separated by tabs. A data frame is accepted if it has as many columns as the
    model reads, `columns`; the number of texts in a tuple is not checked. Raises `UsageError` for a
    single text, for another number of columns in a data frame, and for anything that is no text.
    """
    if isinstance(texts, str):
        raise UsageError(f"{method} takes a list of texts: write {method}([{texts[:20]!r}])")
    if (table := table_of(texts)) is not None:
        names, texts = table
        if len(names) != columns:
            raise UsageError(
                f"{method}: the table has the columns {', '.join(names)}, and the model reads "
                f"{columns}; choose {'it' if columns == 1 else 'them'}: {method}(table[[…]])"
            )
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping):
        raise UsageError(f"{method} takes a list of texts; got {type(texts).__name__}")
    found = []
    for i, text in enumerate(texts):
        parts = text if isinstance(text, tuple) else (text,)
        if not all(isinstance(part, str) for part in parts):
            raise UsageError(
                f"{method} takes a list of texts, each a str or a tuple of the source's columns; "
                f"texts[{i}] is {text!r}"
            )
        found.append("\t".join(parts))
    return found


def similar(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the indices of non-empty rows, shortest first, in groups of up to 128."""
    order = sorted((i for i, row in enumerate(rows) if row), key=lambda i: len(rows[i]))
    for start in range(0, len(order), TEXTS_AT_ONCE):
        yield order[start : start + TEXTS_AT_ONCE]


class AttentionWeights(NamedTuple):
    """The attention weights of one layer for one text."""

    queries: list[str]
    """The tokens that attend. In a decoder each position predicts the token after it."""
    keys: list[str]
    """The tokens attended to."""
    weights: np.ndarray
    """(H, queries, keys): the weights of every head. Each row sums to 1; with `sinks` to less."""

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: the mean over heads, one row per query.

        A darker cell is a larger weight.
        """
        style = "writing-mode:vertical-rl;text-align:left"
        head = "".join(f'<th style="{style}">{escape(key)}</th>' for key in self.keys)
        rows = ""
        for query, row in zip(self.queries, self.weights.mean(axis=0), strict=True):
            cells = (
                f'<td title="{weight:.3f}" style="background:rgba(0,114,178,{weight:.3f})"></td>'
                for weight in row
            )
            rows += f"<tr><th>{escape(query)}</th>{''.join(cells)}</tr>"
        return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def without_unknown(config: Any, target: Tokenizer) -> Any:
    """Return a model's config that forbids generating the unknown token.

    Byte-level tokenizers can write every text, so their config is returned unchanged.
    """
    if UNK in config.suppress_tokens or KINDS[target.kind].bytewise:
        return config
    return replace(config, suppress_tokens=(*config.suppress_tokens, UNK))


@dataclass(frozen=True, repr=False)
class Task(ABC):
    """A model with its tokenizers; a subclass for each kind of model.

    The class holds everything that is specific to the kind. A new kind is one file with such a
    class, and an entry in `TASKS`.
    """

    name: ClassVar[str]
    """`model_type` in config.json and in recipes."""
    about: ClassVar[str]
    """A sentence about the kind of model, for model cards."""
    usual_metric: ClassVar[str] = "none"
    """The default metric in addition to the loss."""
    kind: ClassVar[Kind]
    """The use of a text: "answer" it, "continue" it, "fill" its masks, or "label" it.
    It is trained on pairs, whole texts, texts with masked tokens, or labelled texts."""
    config_class: ClassVar[type[Any]]
    model_class: ClassVar[type[Any]]
    """model_class(config, seed=0) -> the model, with its initial weights."""
    vocabularies: ClassVar[tuple[str, ...]]
    """The settings with the sizes of the vocabularies, that of the source first."""
    added_tokens: ClassVar[int] = 0
    """Number of entries of the last vocabulary that its tokenizer does not have."""
    generates: ClassVar[bool] = False
    """Whether the model generates text token by token, and so has search settings."""

    model: Any
    source: TokenizerLike
    """The tokenizer of texts."""
    target: TokenizerLike
    """The tokenizer of the model's output; it may be the same as `source`."""
    metric: str = field(default="none", kw_only=True)
    """Name in `METRICS` of the metric that `evaluate` computes by default."""
    columns: int = field(default=1, kw_only=True)
    """Number of tab-separated columns of each source in the training data."""

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizers: Sequence[Any],
        search: SearchConfig = GREEDY,
        arithmetic: Arithmetic = "float32",
    ) -> Self:
        """Make the task of a model and its tokenizers: one, or one for each side.

        A task that does not generate ignores `search` and `arithmetic`.
        """
        more: dict[str, Any] = {}
        if cls.generates:
            more = {"search": search, "arithmetic": arithmetic}
        return cls(model, tokenizers[0], tokenizers[-1], **more)

    @classmethod
    def build(
        cls,
        config: Any,
        tokenizers: Sequence[Tokenizer],
        search: SearchConfig = GREEDY,
        seed: int = 0,
    ) -> Self:
        """Make the task of a new model with initial weights, sized for its tokenizers.

        The model is in train mode. tokenizers: of the source and the target, or one for both.
        Raises `UsageError` if the config's special token ids differ from those of the tokenizers.
        """
        if error := token_error(config):
            raise UsageError(f"model.{error}")
        ends = (tokenizers[0], tokenizers[-1])[-len(cls.vocabularies) :]
        sizes = [tokenizer.vocab_size for tokenizer in ends]
        sizes[-1] += cls.added_tokens
        config = replace(config, **dict(zip(cls.vocabularies, sizes, strict=True)))
        if cls.generates:
            config = without_unknown(config, tokenizers[-1])
        return cls.of(cls.model_class(config, seed=seed), tokenizers, search)

    @classmethod
    def tokenizer_sizes(cls, config: Any) -> list[int]:
        """Return the number of tokens that each tokenizer must have, by the config."""
        sizes = [getattr(config, name) for name in cls.vocabularies]
        return [*sizes[:-1], sizes[-1] - cls.added_tokens]

    @property
    def tokenizers(self) -> list[Any]:
        """The tokenizer of each vocabulary."""
        return [self.source, self.target][: len(self.vocabularies)]

    def check_columns(self, text: str) -> None:
        """Raise `UserError` if a text has another number of columns than the training data.

        Columns are separated by tabs. If the training data had one, every text is accepted.
        """
        given = text.count("\t") + 1
        if self.columns not in (1, given):
            raise UserError(
                f"expected {self.columns} columns with tabs between them (in Python: a tuple), "
                f"as the training data had; {shorten(text, 40, placeholder='…')!r} has {given}"
            )

    @property
    def begins(self) -> bool:
        """Whether a model that reads one text gets a begin token before it."""
        return True

    @property
    def max_source_length(self) -> int:
        """The most tokens that a text may have."""
        length: int = self.model.config.max_position_embeddings
        return length

    def encode(
        self, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool = False
    ) -> Examples:
        """Tokenize pairs for training or evaluation.

        Tasks that read one text take the first target of each pair, whatever `first_target_only`,
        and no source. Pairs with an empty side, or more than `max_tokens` on a side, are left out,
        with a warning; a decoder alone splits longer texts into blocks instead. Raises `UserError`
        if nothing is left.
        """
        ids = self.model.config
        return encode_pairs(
            pairs,
            None,
            self.source,
            max_tokens=max_tokens,
            first_target_only=True,
            begin=[ids.bos_token_id] if self.begins else [],
            end=ids.eos_token_id,
            blocks=self.kind == "continue",
        )

    def evaluate(
        self,
        pairs: Any,
        metric: str | None = None,
        *,
        max_tokens: int | None = None,
        batch_tokens: int = 4096,
    ) -> Scores:
        """Compute the loss of each pair's first target, and the scores of this task.

        These are a metric of the generated answers, the scores of labels, or the accuracy of masked
        tokens; of a decoder alone the loss only. A model of one text reads the targets.

        pairs: (source, target) tuples, a table, or a file of pairs, as `pellucid.train` takes them.
        metric: a name in `METRICS`; "none" generates nothing; None: the metric of the training.
            "none" computes the usual one for labels.
        max_tokens: as in `encode`; None: the model's `max_position_embeddings` less 2.
        batch_tokens: the most tokens in a batch, raised where the longest pair may need more; it
            affects speed, and scores only by rounding.

        Raises `UserError` for errors in a file, and if no pair is left, `UsageError` for an unknown
        metric, one of another kind of task, and `max_tokens` below 1.

        >>> print(model.evaluate([("attention", "ə t ˈɛ n ʃ ə n")]))  # doctest: +SKIP
        """
        metric = self.metric if metric is None else metric
        check_metric(metric, self.kind)
        pairs = pairs_of(pairs)
        longest: int = self.model.config.max_position_embeddings - 2
        max_tokens = longest if max_tokens is None else max_tokens
        if max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        batch_tokens = max(batch_tokens, 2 * max_tokens + 2)
        examples = self.encode(pairs, max_tokens=max_tokens, first_target_only=True)
        batches = held_out_batches(examples, batch_tokens)
        scores = Scores(self.held_out_loss(batches), len(examples), self.kind)
        return self._completed(scores, batches, pairs, metric)

    def held_out_loss(self, batches: Sequence[Batch]) -> float:
        """Return the mean loss of batches in nats per predicted token.

        The model is left in eval mode.
        """
        return held_out_loss(self.model, batches)

    def attention(self, text: str, answer: str | None = None) -> dict[str, AttentionWeights]:
        """Return the attention of each layer by name while the model reads a text.

        A model that generates also reads an answer: the one given, or else the best that it
        generates, or the first that it samples. Raises `UserError` for a text or an answer that is
        too long, and for an empty text that the model cannot answer; `UsageError` for an answer to
        a model that generates none, and for anything but a str.

        >>> seen = model.attention("attention")["decoder.layers.2.multihead_attn"]  # doctest: +SKIP
        >>> seen.weights.mean(axis=0).argmax(axis=1)  # doctest: +SKIP
        array([0, 1, 1, 3, 4, 8, 5, 8, 8])
        """
        check_text(text, "attention")
        if answer is not None and not self.generates:
            raise UsageError("an encoder alone writes no answer: leave it out")
        self.warn_unread([text])
        with Recorder() as recorder:
            read = self._read(text, answer)
        tokens = {
            stack: (self.target if stack == "decoder" else self.source).tokens(ids)
            for stack, ids in read.items()
        }
        found = {}
        for name, layer in recorder.maps.items():
            queries = tokens[name.partition(".")[0]]
            keys = tokens["encoder"] if name.endswith("multihead_attn") else queries
            found[name] = AttentionWeights(queries, keys, to_host(layer.weights)[0])
        return found

    def unread(self, text: str) -> list[str]:
        """Return the parts of a text that have no token: characters or words new to the model."""
        check_text(text, "unread")
        return list(self.source.unknown([text]))

    def warn_unread(self, texts: Iterable[str]) -> None:
        """Log a warning that lists what training never saw, if there is any in the texts."""
        if new := {part: None for text in texts for part in self.unread(text)}:
            _log.warning(f"not seen in training: {' '.join(map(repr, new))}")

    def check_seen(self, text: str) -> None:
        """Raise `UserError` if at least half of a text is new to the model.

        An answer to it would be meaningless. See `TokenizerLike.knows`.
        """
        if not self.source.knows(text):
            unknown = " ".join(map(repr, self.unread(text)))
            raise UserError(f"half of it, or more, was not seen in training: {unknown}")

    @abstractmethod
    def _read(self, text: str, answer: str | None) -> dict[str, Sequence[int]]:
        """Run the model on a text and an answer.

        Return the token ids that each stack read.
        """

    def rows(self) -> dict[str, Any]:
        """Return a summary by name: kind of model, parameters, layers, sizes and vocabulary."""
        config = self.model.config
        return {
            "model": self.about,
            "parameters": f"{sum(p.data.size for p in self.model.parameters()):,}",
            **{f"{name} layers": getattr(config, of) for name, of in config.depths.items()},
            "width, heads": f"{config.d_model}, {config.num_attention_heads}",
            "vocabulary": ", ".join(f"{each.vocab_size:,}" for each in self.tokenizers),
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:16} {value}" for name, value in self.rows().items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the summary as an HTML table for notebooks."""
        each = self.rows().items()
        cells = (f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in each)
        return f"<table>{''.join(cells)}</table>"

    def validation(
        self, pairs: Sequence[TextPair], metric: str, most: int
    ) -> Callable[[Any], Mapping[str, float]] | None:
        """Return a function of the model: further scores of held-out pairs, by name.

        Training calls it at each validation. None if there are no such scores, as here. metric: a
        name in `METRICS`, or "none". most: the most pairs to generate answers for.
        """
        return None

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Add the scores of this kind of task to the loss."""
        return scores
