"""Base of all models: stacks, the loss of the predicting rows, and decoding."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid import nn, ops
from pellucid.core.array import Array, namespace, to_host, widened
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import StackConfig
from pellucid.models.output import LossSum, output_loss
from pellucid.models.stack import ModelStack
from pellucid.nn.module import Forward, single_use

Predicting = tuple[Array, Array, Callable[[Array], Any]]
"""The rows (M, E) that predict, the tokens or labels (M,) that they should, and backward."""


class Model(nn.Module):
    """Stacks of layers, the embeddings that enter them, and an output layer."""

    entrances: ClassVar[Mapping[str, str]]
    """By the name of each stack, the attribute of the embeddings that enter it."""
    output: Any

    def stacks(self) -> dict[str, ModelStack]:
        """Return every stack with the embeddings that enter it."""
        return {
            name: ModelStack(name, getattr(self, embed), getattr(self, name))
            for name, embed in self.entrances.items()
        }

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return next(self.parameters()).data.dtype

    @abstractmethod
    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Return the rows (M, E) that predict, the tokens (M,) that they should, and backward.

        `inference`: dropout is off, whatever mode the model is in.
        """

    def predicted(self, batch: Batch, first: int = 0) -> tuple[Array, Array]:
        """Return the likeliest token of each row that predicts, and the one that it should, (M,).

        Those below `first` are not predicted. Dropout is off, and nothing is drawn: a masked
        language model always hides the same.
        """
        rows, wanted, _ = self.predicting(batch, None, inference=True)
        logits = self.output(rows)[:, first:]
        return to_host(namespace(logits).argmax(logits, axis=1)) + first, wanted

    def loss(
        self, batch: Batch, rng: Rng | None = None, label_smoothing: float = 0.0
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return the summed cross-entropy of what the batch wants predicted, and its backward.

        `backward(scale)` adds the gradients of scale · loss to every parameter. While training
        with dropout an `rng` is needed; it is keyed by the batch's example numbers and positions.
        """
        rows, wanted, rows_backward = self.predicting(batch, rng)
        loss, loss_backward = output_loss(self.output, rows, wanted, label_smoothing)
        return loss, single_use(lambda scale=1.0: rows_backward(loss_backward(scale)))

    def logits(self, rows: Array, rows_backward: Callable[[Array], Any]) -> Forward:
        """Return (the output layer's logits of rows, backward through both)."""
        logits, output_backward = self.output.forward(rows)
        return logits, single_use(lambda dlogits: rows_backward(output_backward(dlogits)))


def choices(log_p: Array, config: StackConfig) -> Array:
    """Return log p (B, V) as generation chooses by it: the likeliest end stands for all ends, and
    tokens that are suppressed have −inf; on the host, if there are any.

    With the largest, and not the sum, greedy and beam search end where transformers' do.
    """
    eos, ends, never = config.eos_token_id, config.end_token_ids, config.suppress_tokens
    if not ends and not never:
        return log_p
    chosen = to_host(log_p).copy()
    most = chosen[:, [eos, *ends]].max(1)
    chosen[:, list(ends)], chosen[:, eos] = -math.inf, most
    chosen[:, list(never)] = -math.inf
    return chosen


@dataclass(frozen=True)
class State:
    """Where decoding stands: what every text has read and generated so far.

    The key/value cache, each sequence's next position (B,), and the memory if there is one.
    """

    cache: nn.Cache
    positions: Array
    memory: nn.Memory | None = None

    def select(self, index: Array) -> State:
        """Return the state of these hypotheses, in this order; one may come several times."""
        memory = None if self.memory is None else self.memory.select(index)
        return State(self.cache.select(index), self.positions[index], memory)


class GenerativeModel(Model):
    """A model that generates token by token, by its stack "decoder"."""

    @abstractmethod
    def reads(self, batch: Batch) -> dict[str, Packed]:
        """Return the input tokens of each stack; the target's last token is not an input."""

    @abstractmethod
    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""

    @abstractmethod
    def start(self, source: Packed) -> State:
        """Return the state before the first token, one hypothesis per source."""

    def step(self, state: State, tokens: Array) -> tuple[Array, State]:
        """Feed one token to every hypothesis; return (log-probabilities (B, V) of the next, state).

        tokens: (B,). The given state stays as it is, so that several may go on from one. Raises
        `ValueError` past the last position.
        """
        newest, cache = Packed.of([[token] for token in tokens]), state.cache.copy()
        rows, _ = self.stacks()["decoder"].run(
            newest, memory=state.memory, cache=cache, inference=True, positions=state.positions
        )
        log_p, _ = ops.log_softmax(widened(self.output(rows)))
        config: StackConfig = self.config  # type: ignore[attr-defined]
        return choices(log_p, config), State(cache, state.positions + 1, state.memory)
