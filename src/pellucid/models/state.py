"""Where decoding stands: what every text has read and generated so far."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid import nn, ops
from pellucid.core.array import Array, host, widened
from pellucid.core.batch import one_length
from pellucid.models.stack import ModelStack


@dataclass(frozen=True)
class State:
    """The key/value cache, each sequence's next position (B,), and the memory if there is one."""

    cache: nn.Cache
    positions: Array
    memory: nn.Memory | None = None

    def select(self, index: Array) -> State:
        """Return the state of these hypotheses, in this order; one may come several times."""
        memory = None if self.memory is None else self.memory.select(index)
        return State(self.cache.select(index), self.positions[index], memory)


def decode_step(
    stack: ModelStack, output: nn.Linear, state: State, tokens: Array
) -> tuple[Array, State]:
    """Feed one token to every sequence; return (log-probabilities (B, V) of the next, state).

    The given state stays as it is, so that several may go on from one.
    """
    tokens = host.asarray(tokens)
    x, _ = stack.embed.forward(tokens, state.positions, inference=True)
    cache = state.cache.copy()
    rows, _ = stack.body.run(
        x,
        nn.Context(
            cu_seqlens=one_length(len(tokens), 1),
            causal=stack.causal,
            positions=state.positions,
            memory=state.memory,
            cache=cache,
            inference=True,
            path=stack.name,
        ),
    )
    log_p, _ = ops.log_softmax(widened(output(rows)))
    return log_p, State(cache, state.positions + 1, state.memory)
