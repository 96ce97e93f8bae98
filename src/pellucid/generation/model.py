"""Compile a model for generation if that is possible."""

import copy
import logging
from functools import cache

import numpy as np

from pellucid.core import dispatch
from pellucid.core.array import host_dtype
from pellucid.models.decoding import Decodes
from pellucid.models.quantize import Arithmetic
from pellucid.models.walk import UnsupportedError
from pellucid.nn import Module

_log = logging.getLogger(__name__)


def compile_model(model: Decodes, arithmetic: Arithmetic = "float32") -> Decodes:
    """Return a compiled copy of a model, or the model itself if it cannot be compiled.

    The compiled model multiplies in float32 or, faster and approximately, with weight matrices and
    their inputs rounded to int8 (`arithmetic`). It always runs on the CPU: one token at a time is
    too little work for a GPU. It is a copy: further training of the original does not change it.

    A model can be compiled if it is a float32 `Module` of Pellucid all of whose parts are supported
    (a warning names a part that is not), and kernels are enabled. Any other model is returned as it
    is, whatever `arithmetic` says, and generates with its own `step`, on its device.
    """
    if not isinstance(model, Module) or not dispatch.enabled():
        return model
    if any(host_dtype(p.learnt) != np.float32 for p in model.parameters()):
        return model
    if not all(isinstance(p.data, np.ndarray) for p in model.parameters()):
        arrays = (x for p in model.parameters() for x in (p.data, p.grad, p.master))
        model = copy.deepcopy(model, {id(x): x for x in arrays})  # none is copied on the device
        model.to(np.empty(0))
    try:
        engine: Decodes = dispatch.compiled("pellucid.compiled.engine").Engine(model, arithmetic)
        return engine
    except UnsupportedError as error:
        _warn_once(str(error).partition(";")[0])
        return model


@cache
def _warn_once(reason: str) -> None:
    """Log a warning, once for each reason, that generation is slow."""
    _log.warning("answers come from the layers, many times slower than compiled: %s", reason)
