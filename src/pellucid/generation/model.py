"""The model that generation runs: compiled where that can be done."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from pellucid import kernels
from pellucid.core.array import host_dtype, to_host
from pellucid.core.batch import Packed
from pellucid.kernels.backend.compiling import compiling
from pellucid.models.decoding import Decodes
from pellucid.models.describe import UnsupportedError
from pellucid.models.quantize import Arithmetic
from pellucid.nn import Module

Array = np.ndarray

_log = logging.getLogger(__name__)


class HostModel:
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
        return HostModel(model)
    if not isinstance(model, Module) or not kernels.enabled() or model.dtype != np.float32:
        return model
    with compiling:
        from pellucid.compiled.engine import Engine

    try:
        return Engine(model, arithmetic)
    except UnsupportedError as error:
        _log.debug("generation is not compiled: %s", error)
        return model
