"""The base classes of all models: stacks, the loss, and token-by-token decoding."""

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
"""The hidden states (M, E) that predict, the tokens or labels to predict (M,), and backward."""


class Model(nn.Module):
    """Base class of models: stacks of layers with their embeddings, and an output layer."""

    entrances: ClassVar[Mapping[str, str]]
    """For each stack, by name, the attribute that holds its embeddings."""
    output: Any

    def stacks(self) -> dict[str, ModelStack]:
        """Return the stacks, with their embeddings, by name."""
        return {
            name: ModelStack(name, getattr(self, embed), getattr(self, name))
            for name, embed in self.entrances.items()
        }

    @property
    def dtype(self) -> Any:
        """The dtype of the first parameter, in which the model computes."""
        return next(self.parameters()).data.dtype

    @abstractmethod
    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Return the hidden states that predict, what they should predict, and backward.

        The hidden states are (M, E), those at the positions which count for the loss; the tokens or
        labels are (M,). backward(drows) adds the gradients of the parameters. `inference` switches
        dropout off even in training mode.
        """

    def predicted(self, batch: Batch, first: int = 0) -> tuple[Array, Array]:
        """Return the likeliest token at each predicted position, and the right one, both (M,).

        For a classifier they are labels. Tokens below `first` are never predicted. The result is
        deterministic: dropout is off, and a masked language model always masks the same tokens.
        """
        rows, wanted, _ = self.predicting(batch, None, inference=True)
        logits = self.output(rows)[:, first:]
        return to_host(namespace(logits).argmax(logits, axis=1)) + first, wanted

    def loss(
        self, batch: Batch, rng: Rng | None = None, label_smoothing: float = 0.0
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return the cross-entropy summed over the predicted tokens of a batch, and its backward.

        The sum comes with the number of tokens (or labels). `backward(scale=1.0)` adds the
        gradients of scale · loss to the parameters. In training mode dropout needs an `rng` (else
        `ValueError`), and a masked language model chooses its masks by it; the random bits depend
        on the rng, the batch's example numbers and positions.
        """
        rows, wanted, rows_backward = self.predicting(batch, rng)
        loss, loss_backward = output_loss(self.output, rows, wanted, label_smoothing)
        return loss, single_use(lambda scale=1.0: rows_backward(loss_backward(scale)))

    def logits(self, rows: Array, rows_backward: Callable[[Array], Any]) -> Forward:
        """Apply the output layer to rows; return (logits, backward).

        backward(dlogits) computes the gradient of the rows, and passes it to `rows_backward`.
        """
        logits, output_backward = self.output.forward(rows)
        return logits, single_use(lambda dlogits: rows_backward(output_backward(dlogits)))


def choices(log_p: Array, config: StackConfig) -> Array:
    """Apply a config's `end_token_ids` and `suppress_tokens` to log-probabilities (B, V).

    The end token (`eos_token_id`) gets the largest log-probability of all end tokens, the others
    −inf. (With the largest, instead of the sum, searches end where those of Hugging Face's
    transformers do.) Suppressed tokens get −inf. A config with neither returns `log_p` itself;
    otherwise the result is a new NumPy array.
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
    """The state of decoding after some tokens.

    It holds the key/value cache, the next position of each sequence (B,), and the encoder's output
    if there is one.
    """

    cache: nn.Cache
    positions: Array
    memory: nn.Memory | None = None

    def select(self, index: Array) -> State:
        """Return the state of the hypotheses `index`, in that order; indices may repeat."""
        memory = None if self.memory is None else self.memory.select(index)
        return State(self.cache.select(index), self.positions[index], memory)


class GenerativeModel(Model):
    """Base class of models that generate token by token with their stack "decoder"."""

    @abstractmethod
    def reads(self, batch: Batch) -> dict[str, Packed]:
        """Return the input tokens of each stack; the target's last token is not an input."""

    @abstractmethod
    def room(self, source: Packed) -> Array:
        """Return the maximum number of tokens of the answer to each source, (N,).

        A number below 0 means that the source is too long.
        """

    @abstractmethod
    def start(self, source: Packed) -> State:
        """Return the state before the first token, with one hypothesis per source."""

    def step(self, state: State, tokens: Array) -> tuple[Array, State]:
        """Feed a token to every hypothesis; return the next log-probabilities and the new state.

        tokens: (B,). The log-probabilities are (B, V), after `choices`. The given state does not
        change, so that several continuations can start from it. Raises `ValueError` after the
        model's last position, `IndexError` for a token outside the vocabulary.
        """
        newest, cache = Packed.of([[token] for token in tokens]), state.cache.copy()
        rows, _ = self.stacks()["decoder"].run(
            newest, memory=state.memory, cache=cache, inference=True, positions=state.positions
        )
        log_p, _ = ops.log_softmax(widened(self.output(rows)))
        config: StackConfig = self.config  # type: ignore[attr-defined]
        return choices(log_p, config), State(cache, state.positions + 1, state.memory)
