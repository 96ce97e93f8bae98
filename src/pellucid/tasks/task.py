"""Base of all tasks: a kind of model is a class, a model with its tokenizers an instance."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
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
from pellucid.tasks.scores import Kind, Scores, held_out_loss

TEXTS_AT_ONCE = 128


def token_error(config: StackConfig) -> str | None:
    """Return how a config's special tokens differ from those of every tokenizer here, or None."""
    ids = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
    if ids == (PAD, BOS, EOS):
        return None
    return (
        f"pad_token_id, bos_token_id and eos_token_id must be {PAD}, {BOS} and {EOS}, as in every "
        f"tokenizer; got {', '.join(map(str, ids))}"
    )


def check_text(text: object, what: str) -> None:
    """Raise `UsageError` for what is not one text."""
    if not isinstance(text, str):
        raise UsageError(f"{what}: expected one text, a str; got {type(text).__name__}")


def check_best(best: int) -> None:
    """Raise `UsageError` for a number of guesses below 1."""
    if best < 1:
        raise UsageError(f"best must be at least 1, got {best}")


def checked_texts(texts: Iterable[str | tuple[str, ...]], method: str, columns: int) -> list[str]:
    """Return texts as a list; raise `UsageError` for one text, or what is not texts.

    A tuple is one source of several columns: a pair of texts, or a text and its features. columns:
    how many a source has; a table has them as its columns.
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
    if not isinstance(texts, Iterable):
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
    """Yield the numbers of rows in groups of similar length; those of empty rows are left out."""
    order = sorted((i for i, row in enumerate(rows) if row), key=lambda i: len(rows[i]))
    for start in range(0, len(order), TEXTS_AT_ONCE):
        yield order[start : start + TEXTS_AT_ONCE]


class AttentionWeights(NamedTuple):
    """Who attended to whom in one layer."""

    queries: list[str]
    """The tokens that attend; a decoder's predict the token after them."""
    keys: list[str]
    """The tokens attended to."""
    weights: np.ndarray
    """(H, queries, keys): of every head; each row sums to 1."""

    def _repr_html_(self) -> str:
        """Return the mean of the heads for a notebook: a row for each query, darker is more."""
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
    """Return a model's config by which it never generates the token for unknown text.

    Bytes write every text, and that token nothing.
    """
    if UNK in config.suppress_tokens or KINDS[target.kind].bytewise:
        return config
    return replace(config, suppress_tokens=(*config.suppress_tokens, UNK))


@dataclass(frozen=True, repr=False)
class Task(ABC):
    """A model in eval mode with its tokenizers; the class is all that is known of its kind.

    A new kind is one file with such a class, and its row in `TASKS`.
    """

    name: ClassVar[str]
    """`model_type` in config.json and in recipes."""
    about: ClassVar[str]
    """One sentence for model cards."""
    usual_metric: ClassVar[str] = "none"
    """The metric besides the loss, where the settings name none."""
    kind: ClassVar[Kind]
    """The use of a text: answer it, continue it, fill [MASK] in it, or label it.

    It learns from pairs, whole texts, texts of which some tokens are masked, or texts with labels;
    a metric can compare answers with the targets.
    """
    config_class: ClassVar[type[Any]]
    model_class: ClassVar[type[Any]]
    """model_class(config, seed=0) -> the model, with its initial weights."""
    vocabularies: ClassVar[tuple[str, ...]]
    """The settings that hold the vocabularies' sizes, the source's first."""
    added_tokens: ClassVar[int] = 0
    """Entries of the last vocabulary that are no tokens of its tokenizer."""
    generates: ClassVar[bool] = False
    """Whether it generates text token by token, so that there are search settings."""

    model: Any
    source: TokenizerLike
    """The tokenizer of texts."""
    target: TokenizerLike
    """The tokenizer of what the model makes of them; it may be the same."""
    metric: str = field(default="none", kw_only=True)
    """The metric that is computed by default: a name in `METRICS`."""
    columns: int = field(default=1, kw_only=True)
    """How many columns each source had that it learnt from, with tabs between them."""

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizers: Sequence[Any],
        search: SearchConfig = GREEDY,
        arithmetic: Arithmetic = "float32",
    ) -> Self:
        """Return the task of a model and its tokenizers: one, or the source's and the target's.

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
        """Return a new model with its initial weights, its vocabularies as large as the tokenizers.

        tokenizers: the source's and the target's; they may be one. Raises `UsageError` for special
        tokens other than the tokenizers'.
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
        """Return how many tokens the tokenizer of each vocabulary has."""
        sizes = [getattr(config, name) for name in cls.vocabularies]
        return [*sizes[:-1], sizes[-1] - cls.added_tokens]

    @property
    def tokenizers(self) -> list[Any]:
        """The tokenizer of each vocabulary."""
        return [self.source, self.target][: len(self.vocabularies)]

    def check_columns(self, text: str) -> None:
        """Raise `UserError` for a text without the columns that the model learnt to read."""
        given = text.count("\t") + 1
        if self.columns not in (1, given):
            raise UserError(
                f"expected {self.columns} columns with tabs between them, as the training data "
                f"had; {shorten(text, 40, placeholder='…')!r} has {given}"
            )

    @property
    def begins(self) -> bool:
        """Whether a text is read behind a begin token."""
        return True

    @property
    def max_source_length(self) -> int:
        """The most tokens a text may have."""
        length: int = self.model.config.max_position_embeddings
        return length

    def encode(
        self, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool = False
    ) -> Examples:
        """Tokenize pairs as the model reads them; a model of one text reads their first targets.

        Pairs with a side of more than `max_tokens` are left out, with a warning. Raises `UserError`
        when nothing is left.
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
        """Return the loss of each pair's first target, and what the kind of task adds.

        That is a metric of the generated answers, or the accuracy of labels or of masked tokens.

        pairs: (source, target) tuples, a table, or a file of pairs, as `pellucid.train` takes them.
        metric: a name in `METRICS`; "none" generates nothing; None: that of the training.
        max_tokens: pairs with a longer side are left out; None: those that the model cannot read.
        batch_tokens: most tokens in a batch; it changes speed, not scores.

        >>> print(model.evaluate([("attention", "ə t ˈɛ n ʃ ə n")]))  # doctest: +SKIP
        """
        pairs, metric = pairs_of(pairs), self.metric if metric is None else metric
        max_tokens = max_tokens or self.model.config.max_position_embeddings - 2
        batch_tokens = max(batch_tokens, 2 * max_tokens + 2)
        examples = self.encode(pairs, max_tokens=max_tokens, first_target_only=True)
        batches = held_out_batches(examples, batch_tokens)
        scores = Scores(self.held_out_loss(batches), len(examples), self.kind)
        return self._completed(scores, batches, pairs, metric)

    def held_out_loss(self, batches: Sequence[Batch]) -> float:
        """Return the loss in nats per token that is predicted."""
        return held_out_loss(self.model, batches)

    def attention(self, text: str, answer: str | None = None) -> dict[str, AttentionWeights]:
        """Return the attention of each layer, by its name, while the model reads a text.

        Of a model that generates, while it also writes the answer: the one given, or else its own
        best. Raises `UserError` for a text or an answer that is too long.

        >>> seen = model.attention("attention")["decoder.layers.2.multihead_attn"]  # doctest: +SKIP
        >>> seen.weights.mean(axis=0).argmax(axis=1)  # doctest: +SKIP
        array([0, 1, 1, 3, 4, 8, 5, 8, 8])
        """
        check_text(text, "attention")
        if answer is not None and not self.generates:
            raise UsageError("an encoder alone writes no answer: leave it out")
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
        """Return what of a text the model never saw in training."""
        return list(self.source.unknown([text]))

    def check_seen(self, text: str) -> None:
        """Raise `UserError` for a text of which half, or more, was never seen in training.

        An answer to it would mean nothing.
        """
        if not self.source.knows(text):
            unknown = " ".join(map(repr, self.unread(text)))
            raise UserError(f"half of it, or more, was not seen in training: {unknown}")

    @abstractmethod
    def _read(self, text: str, answer: str | None) -> dict[str, Sequence[int]]:
        """Run the model on a text, and on an answer; return the tokens that each stack read."""

    def rows(self) -> dict[str, Any]:
        """Return the rows of its summary: parameters, layers, sizes and vocabulary."""
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
        """Return a table for a notebook."""
        each = self.rows().items()
        cells = (f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in each)
        return f"<table>{''.join(cells)}</table>"

    def validation(
        self, pairs: Sequence[TextPair], metric: str, most: int
    ) -> Callable[[Any], Mapping[str, float]] | None:
        """Return a function that scores answers to at most `most` held-out pairs, or None."""
        return None

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Return the scores with what the task adds to the loss."""
        return scores
