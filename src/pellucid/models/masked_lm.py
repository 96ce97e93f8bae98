"""The encoder alone, which fills what is masked and turns a text to a vector: the BERT half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pellucid import nn, ops
from pellucid.core.array import (
    Array,
    float32,
    host,
    like,
    namespace,
    scatter_add,
    spread,
    to_host,
)
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.core.rng import Rng
from pellucid.core.vjp import part
from pellucid.kernels import dispatch
from pellucid.models.config import MaskedLMConfig
from pellucid.models.embed import Embed
from pellucid.models.inits import choose_inits
from pellucid.models.layers import encoder_of, norm_of
from pellucid.models.masking import mask_tokens
from pellucid.models.output import LossSum, output_layer, output_loss
from pellucid.models.stack import ModelStack
from pellucid.nn.blocks import gates_of
from pellucid.nn.module import Forward, single_use

Pooling = Literal["mean", "first", "pooler"]


class MaskedHead(nn.Module):
    """norm(activation(dense(x))): what stands before the output layer."""

    def __init__(self, config: MaskedLMConfig, dtype: Any) -> None:
        self.activation = config.activation_function
        gates, width = gates_of(self.activation), config.d_model
        self.dense = nn.Linear(width, gates * width, dtype=dtype, seed=None)
        self.dense.weight.packed = (width,) * gates
        self.norm = norm_of(config, dtype)

    def forward(self, input: Array) -> Forward:
        """Return (y, backward)."""
        h, dense_backward = self.dense.forward(input)
        a, act_backward = dispatch(ops.bias_act_dropout, h, None, activation=self.activation)
        y, norm_backward = self.norm.forward(a)

        @single_use
        def backward(dy: Array) -> Array:
            dh, _ = act_backward(norm_backward(dy))
            return dense_backward(dh)

        return y, backward


class MaskedLM(nn.Module):
    """A Transformer whose rows look both ways: p(token | the tokens around it).

    Of a training pair the target is the text, with its begin and end; the source is not read. With
    `config.head` off it gives rows and embeddings only.
    Source: Devlin et al. 2019 (BERT); article 001.

    >>> config = MaskedLMConfig(vocab_size=11, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = MaskedLM(config, seed=0).eval()
    >>> text = Packed.of([[1, 5, 10, 2], [1, 7, 2]])
    >>> model(text).shape, model.embeddings(text).shape
    ((7, 11), (2, 8))
    """

    def __init__(self, config: MaskedLMConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        e = config.d_model
        self.embed = Embed(config, config.vocab_size, dtype, config.type_vocab_size)
        self.encoder = encoder_of(config, config.num_hidden_layers, dtype)
        self.pooler = nn.Linear(e, e, dtype=dtype, seed=None) if config.pooler else None
        self.head: MaskedHead | None = None
        self.output: nn.Linear | None = None
        if config.head:
            self.head = MaskedHead(config, dtype)
            choose_inits(config, self.head)
            self.output = output_layer(config, self.embed.tokens, dtype)
        self.initialise(seed)

    def stacks(self) -> dict[str, ModelStack]:
        """Return the stack with the embeddings that enter it."""
        return {"encoder": ModelStack("encoder", self.embed, self.encoder)}

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return self.embed.tokens.weight.data.dtype

    def rows(
        self,
        text: Packed,
        segments: Array | None = None,
        rng: Rng | None = None,
        inference: bool = False,
    ) -> Forward:
        """Return (the encoder's rows (T, E), backward). segments: (T,), 0 unless given.

        `inference`: dropout is off, whatever mode the model is in.
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
        """Return (logits (T, V) of each token itself, backward). `inference` is as in `rows`."""
        head, output = self._predictor()
        rows, rows_backward = self.rows(text, segments, rng, inference)
        y, head_backward = part(head.forward, rows, path="head")
        logits, output_backward = output.forward(y)

        @single_use
        def backward(dlogits: Array) -> None:
            rows_backward(head_backward(output_backward(dlogits)))

        return logits, backward

    def loss(
        self,
        batch: Batch,
        rng: Rng | None = None,
        label_smoothing: float = 0.0,
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Hide some tokens of the targets; return their summed cross-entropy, and its backward.

        What is hidden is keyed by `rng` and the batch's example numbers and positions; without an
        rng it is the same every time. `backward(scale)` adds the gradients of scale · loss.
        """
        head, output = self._predictor()
        text, chosen, wanted = mask_tokens(batch.target, self.config, (rng or Rng(0)).fold(2))
        rows, rows_backward = self.rows(text, None, rng)
        y, head_backward = head.forward(_take(rows, chosen))
        loss, loss_backward = output_loss(output, y, wanted, label_smoothing)

        @single_use
        def backward(scale: float = 1.0) -> None:
            drows = head_backward(loss_backward(scale))
            rows_backward(spread(drows, chosen, rows.shape[0]))

        return loss, backward

    def count_right(self, batch: Batch) -> tuple[int, int]:
        """Return how many of the tokens that `loss` hides are the likeliest there, and of how many.

        What is hidden is what `loss` without an rng hides: for eval mode, where dropout needs none.
        """
        head, output = self._predictor()
        text, chosen, wanted = mask_tokens(batch.target, self.config, Rng(0).fold(2))
        rows, _ = self.rows(text)
        logits = output(head(_take(rows, chosen)))
        likeliest = to_host(namespace(logits).argmax(logits, axis=1))
        return int((likeliest == wanted).sum()), len(wanted)

    def embeddings(
        self, text: Packed, pooling: Pooling = "mean", segments: Array | None = None
    ) -> Array:
        """Return one vector (N, E) for each sequence.

        "mean" of its rows, its "first" row, or BERT's "pooler": tanh of a layer over the first.
        Dropout is off. A sequence without tokens has none: `ValueError`.
        """
        if not text.lengths.all():
            raise ValueError(f"sequence {int(text.lengths.argmin())} has no tokens to pool")
        rows, _ = self.rows(text, segments, inference=True)
        if pooling == "mean":
            sequence = host.repeat(host.arange(len(text)), text.lengths)
            total = scatter_add(like(sequence, rows), rows, len(text))
            lengths = like(text.lengths[:, None], rows)
            return total / namespace(rows).astype(lengths, rows.dtype)
        first = _take(rows, text.cu_seqlens[:-1])
        if pooling == "first":
            return first
        if self.pooler is None:
            raise UserError('this model has no pooler; ask for "mean" or "first"')
        pooled = self.pooler(first)
        return namespace(pooled).tanh(pooled)

    def _predictor(self) -> tuple[MaskedHead, nn.Linear]:
        if self.head is None or self.output is None:
            raise UserError(
                "this model has no layer that predicts tokens (config.head is off); it gives rows "
                "and embeddings"
            )
        return self.head, self.output


def _take(rows: Array, index: Array) -> Array:
    return namespace(rows).take(rows, like(index, rows), axis=0)
