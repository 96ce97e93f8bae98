"""The encoder with a layer of labels: one for a text, or one for each of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pellucid import nn
from pellucid.core.array import Array, float32, host, like, namespace, scatter_add, to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import ClassifierConfig
from pellucid.models.embed import Embed
from pellucid.models.inits import table_init
from pellucid.models.layers import encoder_of
from pellucid.models.output import LossSum, output_loss
from pellucid.models.stack import ModelStack
from pellucid.nn.init import zeros
from pellucid.nn.module import Forward, single_use


class Classifier(nn.Module):
    """p(label | text), or p(label | token and those around it): logits of a layer over the rows.

    The row of a text is the mean of its tokens'. Of a training pair the source is the text, and the
    target is its label, or a label for each token, with a begin and an end, which are not read.

    >>> config = ClassifierConfig(vocab_size=11, label_vocab_size=7, d_model=8, ffn_dim=17,
    ...     num_attention_heads=2)
    >>> model = Classifier(config, seed=0).eval()
    >>> text = Packed.of([[5, 10, 2], [7, 2]])
    >>> model(text).shape
    (2, 7)
    """

    def __init__(self, config: ClassifierConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        self.embed = Embed(config, config.vocab_size, dtype)
        self.encoder = encoder_of(config, config.num_hidden_layers, dtype)
        labels = config.label_vocab_size
        self.output = nn.Linear(config.d_model, labels, config.output_bias, dtype=dtype, seed=None)
        self.output.weight.init = table_init(config.token_init, config.d_model)
        if self.output.bias is not None:
            self.output.bias.init = zeros
        self.initialise(seed)

    def stacks(self) -> dict[str, ModelStack]:
        """Return the stack with the embeddings that enter it."""
        return {"encoder": ModelStack("encoder", self.embed, self.encoder)}

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return self.embed.tokens.weight.data.dtype

    def labelled_rows(
        self, text: Packed, rng: Rng | None = None, inference: bool = False
    ) -> Forward:
        """Return (the rows that have labels, backward): (N, E) of texts, or (T, E) of tokens.

        `inference`: dropout is off, whatever mode the model is in. Raises `ValueError` for a text
        without tokens, which has no mean.
        """
        rows, rows_backward = self.stacks()["encoder"].run(text, rng, inference=inference)
        if self.config.labels == "token":
            return rows, rows_backward
        if not text.lengths.all():
            raise ValueError(f"text {int(text.lengths.argmin())} has no tokens")
        xp, sequence = namespace(rows), host.repeat(host.arange(len(text)), text.lengths)
        index, lengths = like(sequence, rows), like(text.lengths[:, None], rows)
        lengths = xp.astype(lengths, rows.dtype)
        means = scatter_add(index, rows, len(text)) / lengths

        @single_use
        def backward(dmeans: Array) -> None:
            rows_backward(xp.take(dmeans / lengths, index, axis=0))

        return means, backward

    def forward(self, text: Packed, *, rng: Rng | None = None, inference: bool = False) -> Forward:
        """Return (logits (N, labels) of texts or (T, labels) of tokens, backward)."""
        rows, rows_backward = self.labelled_rows(text, rng, inference)
        logits, output_backward = self.output.forward(rows)
        return logits, single_use(lambda dlogits: rows_backward(output_backward(dlogits)))

    def loss(
        self, batch: Batch, rng: Rng | None = None, label_smoothing: float = 0.0
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return the labels' summed cross-entropy, and its backward.

        `backward(scale)` adds the gradients of scale · loss.
        """
        rows, rows_backward = self.labelled_rows(batch.source, rng)
        loss, loss_backward = output_loss(self.output, rows, wanted(batch), label_smoothing)
        return loss, single_use(lambda scale=1.0: rows_backward(loss_backward(scale)))

    def predicted(self, text: Packed) -> Array:
        """Return the likeliest label of each text, or of each token, on the host."""
        return to_host(self(text, inference=True)).argmax(axis=1)


def wanted(batch: Batch) -> Array:
    """Return the labels of a batch: its targets without their begin and end.

    >>> wanted(Batch(Packed.of([[5]]), Packed.of([[1, 6, 2], [1, 4, 2]])))
    array([6, 4])
    """
    target = batch.target
    inside = host.ones(len(target.tokens), bool)
    inside[target.cu_seqlens[:-1]] = inside[target.cu_seqlens[1:] - 1] = False
    return target.tokens[inside]
