"""The model that generation runs: compiled where that can be done."""

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
    """Return a copy of a model for the compiled kernels, or the model itself.

    The kernels multiply in float32, or with all matrices rounded to int8: faster, and near.

    The kernels take float32 models all of whose parts they support, and run on this processor
    wherever the model is: a token at a time is too little work for a GPU. All others (a wrapper,
    another program's model, `PELLUCID_KERNELS=off`) generate by their own steps, on their device.
    The copy does not follow the model when it is trained further.
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
    """Warn, once for each reason, that answers take long."""
    _log.warning("answers come from the layers, many times slower than compiled: %s", reason)
