"""Model families: `FAMILIES` has the record of each by its `model_type`."""

from __future__ import annotations

from typing import Any

from pellucid.core.errors import UserError
from pellucid.families.causal_lm import CAUSAL_LM
from pellucid.families.family import ModelFamily
from pellucid.families.masked_lm import MASKED_LM
from pellucid.families.seq2seq import SEQ2SEQ

FAMILIES: dict[str, ModelFamily] = {
    family.name: family for family in (SEQ2SEQ, CAUSAL_LM, MASKED_LM)
}


def family_of(thing: Any) -> ModelFamily:
    """Return the family of a model, of its configuration, or of its pipeline.

    Raises `UserError` for anything else.

    >>> from pellucid.models.config import CausalLMConfig
    >>> family_of(CausalLMConfig()).task
    'continue'
    """
    model = getattr(thing, "model", thing)
    config = getattr(model, "config", model)
    family = FAMILIES.get(getattr(config, "model_type", ""))
    if family is None:
        raise UserError(
            f"a {type(thing).__name__} is of no model family; expected a model, a configuration "
            f"or a pipeline of {', '.join(FAMILIES)}"
        )
    return family


__all__ = ["FAMILIES", "ModelFamily", "family_of"]
