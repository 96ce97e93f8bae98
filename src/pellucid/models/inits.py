"""How a model's weights are initialised."""

from __future__ import annotations

from pellucid import nn
from pellucid.models.config import StackConfig
from pellucid.nn.attention import Attention
from pellucid.nn.init import Init, normal, uniform, xavier_uniform


def table_init(how: str | float, width: int) -> Init:
    """Return the initialiser of a table of embeddings."""
    if how == "xavier":
        return xavier_uniform
    return normal(width**-0.5 if isinstance(how, str) else how)


def choose_inits(config: StackConfig, stack: nn.Module) -> None:
    """Xavier for every matrix of a stack, as torch's Transformer and article 003 do."""
    for parameter in stack.parameters():
        if len(parameter.shape) > 1:
            parameter.init = xavier_uniform
    if config.attention_init == "separate":
        for _, module in stack.modules():
            if isinstance(module, Attention):
                _separate(module)


def _separate(attention: Attention) -> None:
    """Draw q, k and v apart: each Xavier by itself, biases like a Linear's (article 003)."""
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    assert weight is not None
    e = attention.config.embed_dim
    weight.init = uniform((6.0 / (2 * e)) ** 0.5)
    if bias is not None:
        bias.init = uniform(e**-0.5)
        assert attention.out_proj.bias is not None
        attention.out_proj.bias.init = uniform(e**-0.5)
