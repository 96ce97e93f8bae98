"""Which road a model decodes on: the kernels' if they accept it, else its own steps."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from pellucid import kernels
from pellucid.core.batch import Packed
from pellucid.generation.answers import Decodes, Hypothesis, SearchConfig
from pellucid.models.causal_lm import CausalLM
from pellucid.models.seq2seq import Seq2Seq


@runtime_checkable
class Searches(Protocol):
    """A model whose rows keep their bits in any batch, and which searches by itself."""

    def search(self, source: Packed, config: SearchConfig) -> list[list[Hypothesis]]:
        """Return, for each input in order, its best answers, best first."""


def prepared(model: Decodes) -> Decodes:
    """Return a model made ready for decoding: a copy of its weights, laid out for the kernels.

    A model that the kernels do not take (float64, a wrapper, `PELLUCID_KERNELS=off`) comes back as
    it is. The copy does not follow the model when it is trained further.
    """
    if isinstance(model, Seq2Seq | CausalLM) and kernels.enabled() and model.dtype == np.float32:
        from pellucid.compiled.engine import Engine

        return Engine(model)
    return model
