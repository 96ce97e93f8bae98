"""What generation asks of a model, and the model compiled for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pellucid import kernels
from pellucid.core.array import host_dtype, to_host
from pellucid.core.batch import Packed
from pellucid.kernels.backend.compile import compiling
from pellucid.models.describe import UnsupportedError
from pellucid.models.quantize import Arithmetic
from pellucid.nn import Module

Array = np.ndarray

_log = logging.getLogger(__name__)


class Decodes(Protocol):
    """A model that generates token by token."""

    config: Any

    @property
    def dtype(self) -> Any:
        """The dtype of its parameters."""

    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""

    def start(self, source: Packed) -> Any:
        """Return the state before the first token, one hypothesis per source."""

    def step(self, state: Any, tokens: Array) -> tuple[Array, Any]:
        """Return the log-probabilities (B, V) of the next token, and the state after it."""


class Elsewhere:
    """A model on another device, as search sees a model: log-probabilities come back to NumPy."""

    def __init__(self, model: Decodes) -> None:
        self.model, self.config = model, model.config

    @property
    def dtype(self) -> Any:
        """The dtype of the log-probabilities."""
        return host_dtype(next(iter(self.model.parameters())).data)  # type: ignore[attr-defined]

    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""
        return self.model.room(source)

    def start(self, source: Packed) -> Any:
        """Return the state before the first token, one hypothesis per source."""
        return self.model.start(source)

    def step(self, state: Any, tokens: Array) -> tuple[Array, Any]:
        """Return the log-probabilities (B, V) of the next token, and the state after it."""
        log_p, state = self.model.step(state, tokens)
        return to_host(log_p), state


def compile_model(model: Decodes, arithmetic: Arithmetic = "float32") -> Decodes:
    """Return a copy of a model for the compiled kernels, or the model itself.

    The kernels multiply in float32, or with all matrices rounded to int8: faster, and near.

    A model on another device generates there. The kernels take float32 models whose description
    they support. All others (a wrapper, another program's model, `PELLUCID_KERNELS=off`) generate
    by their own steps. The copy does not follow the model when it is trained further.
    """
    if isinstance(model, Module) and not all(
        isinstance(p.data, np.ndarray) for p in model.parameters()
    ):
        return Elsewhere(model)
    if not isinstance(model, Module) or not kernels.enabled() or model.dtype != np.float32:
        return model
    with compiling:
        from pellucid.compiled.engine import Engine

    try:
        return Engine(model, arithmetic)
    except UnsupportedError as error:
        _log.debug("generation is not compiled: %s", error)
        return model


def limits_of(
    model: Decodes, source: Packed, max_length: int, prefixes: Sequence[Sequence[int]] = ()
) -> Array:
    """Return the most tokens that the answer to each input may have: (N,).

    Raises `ValueError` for an input that leaves no room to begin, for a prefix longer than its
    answer may be, and when there is not a prefix for each input (or none at all).
    """
    if prefixes and len(prefixes) != len(source):
        raise ValueError(f"expected a prefix for each of {len(source)} inputs, got {len(prefixes)}")

    room = np.asarray(model.room(source))
    if len(room) and room.min() < 0:
        raise ValueError(
            f"a text of {int(source.lengths[room.argmin()])} tokens leaves no room for an answer "
            f"among the model's {model.config.max_position_embeddings} positions; shorten it"
        )
    limits: Array = np.minimum(room, min(max_length, np.iinfo(room.dtype).max))
    for prefix, limit in zip(prefixes, limits, strict=bool(prefixes)):
        if len(prefix) > limit:
            raise ValueError(f"a prefix of {len(prefix)} tokens for an answer of at most {limit}")
    return limits
