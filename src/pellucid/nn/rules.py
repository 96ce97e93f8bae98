"""The rule of a layer's attention, made of its settings."""

from __future__ import annotations

from pellucid.nn.config import AttentionConfig
from pellucid.nn.module import Parameter
from pellucid.ops import rules
from pellucid.ops.rule import EVERYTHING, Rule


def rule_of(config: AttentionConfig, table: Parameter | None, causal: bool, more: Rule) -> Rule:
    """Return what an attention layer does to its scores, and then what else is said of them.

    `table`: T5's, (buckets, H), or None.
    """
    rule = EVERYTHING if config.softcap is None else rules.soft_cap(config.softcap)
    if causal:
        rule &= rules.causal
    if config.window is not None:
        rule &= rules.window(config.window)
    if config.distance_bias is not None:
        rule &= rules.by_distance(config.distance_bias)
    if table is not None and config.relative is not None:
        rule &= rules.relative(table.data, config.relative.longest, not causal)
    return rule & more
