"""An encoder with a classification layer: a label for each text, or for each of its tokens."""

from typing import Any, ClassVar

from pellucid import nn
from pellucid.core.array import float32
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import ClassifierConfig
from pellucid.models.embed import Embed
from pellucid.models.layers import choose_inits, stack_of
from pellucid.models.model import Model, Predicting
from pellucid.models.output import means, output_layer, pooled
from pellucid.nn.module import Forward, single_use


class Classifier(Model):
    """An encoder that predicts a label for each text, or for each token (`config.labels`).

    A linear layer maps the hidden states to logits; for a text it is applied to the mean of its
    tokens' hidden states, or to BERT's pooled first one (`config.pooling`). In a training pair the
    source is the text. The target is its label, or a label for each token, between a begin and an
    end token, which are ignored.

    >>> config = ClassifierConfig(vocab_size=11, label_vocab_size=7, d_model=8, ffn_dim=17,
    ...     num_attention_heads=2)
    >>> model = Classifier(config, seed=0).eval()
    >>> text = Packed.of([[5, 10, 2], [7, 2]])
    >>> model(text).shape
    (2, 7)
    """

    entrances: ClassVar = {"encoder": "embed"}

    def __init__(self, config: ClassifierConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        self.embed = Embed(config, config.vocab_size, dtype, config.type_vocab_size)
        self.encoder = stack_of(config, config.num_hidden_layers, dtype)
        self.pooler: nn.Linear | None = None
        if config.pooling == "pooler" and config.labels == "text":
            self.pooler = nn.Linear(config.d_model, config.d_model, dtype=dtype, seed=None)
            choose_inits(config, self.pooler)
        self.output = output_layer(config, config.label_vocab_size, dtype)
        self.initialise(seed)

    def labelled_rows(
        self, text: Packed, rng: Rng | None = None, inference: bool = False
    ) -> Forward:
        """Return the hidden states to classify, (N, E) of texts or (T, E) of tokens, and backward.

        `backward(drows)` returns None. `inference` switches dropout off even in training mode.
        Where texts get labels, raises `ValueError` for a text without tokens.
        """
        rows, rows_backward = self.stacks()["encoder"].run(text, rng, inference=inference)
        if self.config.labels == "token":
            return rows, rows_backward
        if self.pooler is None:
            row, row_backward = means(rows, text)
        else:
            row, row_backward = pooled(rows, text, self.pooler)
        return row, single_use(lambda drow: rows_backward(row_backward(drow)))

    def forward(self, text: Packed, *, rng: Rng | None = None, inference: bool = False) -> Forward:
        """Return the logits, (N, labels) of texts or (T, labels) of tokens, and backward."""
        return self.logits(*self.labelled_rows(text, rng, inference))

    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Return the hidden states to classify, their labels, and backward."""
        rows, rows_backward = self.labelled_rows(batch.source, rng, inference)
        labels = batch.target.without_first().without_last()  # less begin and end
        return rows, labels.tokens, rows_backward
