"""An encoder-only masked language model, as BERT: it predicts masked tokens and embeds texts."""

from typing import Any, ClassVar, Literal, NamedTuple

from pellucid import nn, ops
from pellucid.core.array import Array, float32, host, repeat
from pellucid.core.batch import Batch, Packed
from pellucid.core.dispatch import dispatch
from pellucid.core.errors import UserError
from pellucid.core.rng import Rng, random_bits
from pellucid.core.vjp import part
from pellucid.models.config import MaskedLMConfig
from pellucid.models.embed import Embed
from pellucid.models.layers import choose_inits, norm_of, stack_of
from pellucid.models.model import Model, Predicting
from pellucid.models.output import means, output_layer, pooled, taken
from pellucid.nn.blocks import gates_of
from pellucid.nn.module import Forward, single_use

Pooling = Literal["mean", "first", "pooler"]

MASKED, CHANGED = 0.8, 0.1
"""Shares of the chosen tokens that become the mask, and that become random."""


class Masked(NamedTuple):
    """A batch of texts with some tokens masked."""

    text: Packed
    chosen: Array
    """The rows to predict, ascending, (M,)."""
    wanted: Array
    """The original tokens of these rows, (M,)."""


def mask_tokens(text: Packed, config: MaskedLMConfig, rng: Rng) -> Masked:
    """Mask a share `config.masked_share` of the tokens of each sequence, for training.

    Begin, end and padding tokens are never chosen. Of n ≥ 1 other tokens, round(share · n) but at
    least one are chosen: those with the smallest random bits, which `rng` derives from the row
    keys. A chosen token becomes the mask token with probability 0.8; with probability 0.1 it
    becomes a random token (possibly the same, but no begin, end, padding or mask token); otherwise
    it stays unchanged. Returns a `Masked` with a new text. Source: Devlin et al. 2019 (BERT), 3.1
    and A.1.

    >>> config = MaskedLMConfig(vocab_size=11)
    >>> masked = mask_tokens(Packed.of([[1, 5, 6, 7, 2]]), config, Rng(0))
    >>> len(masked.chosen)
    1
    """
    kept_apart = [config.pad_token_id, config.bos_token_id, config.eos_token_id]
    rows = host.flatnonzero(~host.isin(text.tokens, kept_apart))
    bits = random_bits(rng.at(text.rows[rows]), (len(rows), 3))
    sequence = repeat(host.arange(len(text)), text.lengths)[rows]
    counts = host.bincount(sequence, minlength=len(text))
    asked = host.maximum(host.rint(config.masked_share * counts), 1)
    order = host.lexsort((bits[:, 0], sequence))  # by sequence, smallest bits first
    rank = host.arange(len(rows)) - repeat(host.cumsum(counts) - counts, counts)
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


class MaskedHead(nn.Module):
    """The layer before the output layer, as in BERT: norm(activation(dense(x))), E to E."""

    def __init__(self, config: MaskedLMConfig, dtype: Any) -> None:
        self.activation = config.activation_function
        gates, width = gates_of(self.activation), config.d_model
        self.dense = nn.Linear(width, gates * width, dtype=dtype, seed=None)
        self.norm = norm_of(config, dtype)
        choose_inits(config, self)

    def forward(self, input: Array) -> Forward:
        """Compute the layer; return (y, backward)."""
        h, dense_backward = self.dense.forward(input)
        a, act_backward = dispatch(ops.bias_act_dropout, h, None, activation=self.activation)
        y, norm_backward = self.norm.forward(a)

        @single_use
        def backward(dy: Array) -> Array:
            dh, _ = act_backward(norm_backward(dy))
            return dense_backward(dh)

        return y, backward


class MaskedLM(Model):
    """An encoder-only Transformer that predicts masked tokens: p(token | the tokens around it).

    In a training pair the target is the text, with its begin and end tokens; the source is ignored.
    Without `config.head` it computes only hidden states and embeddings.
    Source: Devlin et al. 2019 (BERT); article 001.

    >>> config = MaskedLMConfig(vocab_size=11, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = MaskedLM(config, seed=0).eval()
    >>> text = Packed.of([[1, 5, 10, 2], [1, 7, 2]])
    >>> model(text).shape, model.embeddings(text).shape
    ((7, 11), (2, 8))
    """

    entrances: ClassVar = {"encoder": "embed"}

    def __init__(self, config: MaskedLMConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        e = config.d_model
        self.embed = Embed(config, config.vocab_size, dtype, config.type_vocab_size)
        self.encoder = stack_of(config, config.num_hidden_layers, dtype)
        self.pooler = nn.Linear(e, e, dtype=dtype, seed=None) if config.pooler else None
        self.head = MaskedHead(config, dtype) if config.head else None
        self.output: nn.Linear | None = None
        if config.head:
            self.output = output_layer(config, config.vocab_size, dtype, self.embed.tokens)
        self.initialise(seed)

    def rows(
        self,
        text: Packed,
        segments: Array | None = None,
        rng: Rng | None = None,
        inference: bool = False,
    ) -> Forward:
        """Compute the encoder's hidden states; return (rows (T, E), backward).

        segments: (T,) integers, 0 by default; `ValueError` if the model has none. `inference`
        switches dropout off even in training mode.
        """
        return self.stacks()["encoder"].run(text, rng, inference=inference, segments=segments)

    def forward(
        self,
        text: Packed,
        segments: Array | None = None,
        *,
        rng: Rng | None = None,
        inference: bool = False,
    ) -> Forward:
        """Return (logits (T, V), backward); row t has the logits of token t itself.

        The arguments are those of `rows`. Raises `UserError` for a model without head.
        """
        head = self._head()
        rows, rows_backward = self.rows(text, segments, rng, inference)
        y, head_backward = part(head.forward, rows, path="head")
        return self.logits(y, lambda dy: rows_backward(head_backward(dy)))

    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Mask tokens of the targets; return the rows that predict them, these tokens, backward.

        Which tokens are masked depends on `rng`, the example numbers and the positions; without an
        rng the choice is always the same. Raises `UserError` for a model without head.
        """
        head = self._head()
        text, chosen, wanted = mask_tokens(batch.target, self.config, (rng or Rng(0)).fold(2))
        rows, rows_backward = self.rows(text, None, rng, inference)
        some, some_backward = taken(rows, chosen)
        y, head_backward = head.forward(some)
        return y, wanted, lambda dy: rows_backward(some_backward(head_backward(dy)))

    def embeddings(
        self, text: Packed, pooling: Pooling = "mean", segments: Array | None = None
    ) -> Array:
        """Return a vector for each sequence, (N, E), computed without dropout.

        It is the "mean" of the sequence's rows, its "first" row, or BERT's "pooler": tanh of a
        linear layer of the first row. Raises `ValueError` for a sequence without tokens, and
        `UserError` for "pooler" if the model has none.
        """
        rows, _ = self.rows(text, segments, inference=True)
        mean, _ = means(rows, text)  # raises for a text without tokens, with any pooling
        if pooling == "mean":
            return mean
        if pooling == "first":
            return taken(rows, text.cu_seqlens[:-1])[0]
        if self.pooler is None:
            raise UserError('this model has no pooler; ask for "mean" or "first"')
        return pooled(rows, text, self.pooler)[0]

    def _head(self) -> MaskedHead:
        """Return the head; raise `UserError` if the model has none."""
        if self.head is None:
            raise UserError(
                "this model has no layer that predicts tokens (config.head is off); it gives rows "
                "and embeddings"
            )
        return self.head
