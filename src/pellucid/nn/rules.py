"""The rule of a layer's attention, made of its settings and of what it has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.nn.init import constant
from pellucid.nn.module import Module, Parameter
from pellucid.ops import rules
from pellucid.ops.rule import Rule
from pellucid.ops.rules.function import Function

if TYPE_CHECKING:
    from pellucid.nn.attention import Attention


class Learnt(Module):
    """The parameters of a function of scores, by their names."""

    def __init__(self, function: Function, heads: int, dtype: Any) -> None:
        for name, each in function.learnt.items():
            if hasattr(Module, name):
                raise ValueError(f"a parameter cannot be called {name}: a module has that already")
            setattr(self, name, Parameter(each.shape(heads), constant(each.initial), dtype))


def learnt(attention: Attention) -> list[Parameter]:
    """Return the parameters of a layer's own rule."""
    functions = [] if attention.function is None else attention.function.parameters()
    every = attention.relative_bias, *functions, attention.sinks
    return [each for each in every if each is not None]


def rule_of(attention: Attention, causal: bool, more: Rule) -> Rule:
    """Return the rule of an attention layer's settings and parameters, with `more` after it."""
    config, table, function = attention.config, attention.relative_bias, attention.function
    rule = rules.causal & config.rule if causal else config.rule
    if table is not None and config.relative is not None:
        rule &= rules.relative(table.data, config.relative.longest, not causal)
    if function is not None and config.function is not None:
        rule &= config.function(*(p.data for p in function.parameters()))
    if attention.sinks is not None:
        rule &= rules.sinks(attention.sinks.data)
    return rule & more
