"""The model that generation runs: compiled where that can be done."""

from __future__ import annotations

import logging

import numpy as np

from pellucid import kernels
from pellucid.kernels.backend.compile import compiling
from pellucid.models.decoding import Decodes
from pellucid.models.quantize import Arithmetic
from pellucid.models.walk import UnsupportedError
from pellucid.nn import Module

_log = logging.getLogger(__name__)


def compile_model(model: Decodes, arithmetic: Arithmetic = "float32") -> Decodes:
    """Return a copy of a model for the compiled kernels, or the model itself.

    The kernels multiply in float32, or with all matrices rounded to int8: faster, and near.

    A model on another device generates there. The kernels take float32 models all of whose parts
    they support. All others (a wrapper, another program's model, `PELLUCID_KERNELS=off`) generate
    by their own steps. The copy does not follow the model when it is trained further.
    """
    if not isinstance(model, Module) or not kernels.enabled():
        return model
    if any(getattr(p.data, "dtype", None) != np.float32 for p in model.parameters()):
        return model
    with compiling:
        from pellucid.compiled.engine import Engine

    try:
        return Engine(model, arithmetic)
    except UnsupportedError as error:
        _log.debug("generation is not compiled: %s", error)
        return model
