"""The rule of a layer's attention, made of its settings."""

from __future__ import annotations

from pellucid.nn.config import AttentionConfig
from pellucid.nn.module import Parameter
from pellucid.ops import rules
from pellucid.ops.rule import Rule


def rule_of(config: AttentionConfig, table: Parameter | None, causal: bool, more: Rule) -> Rule:
    """Return what an attention layer does to its scores, and then what else is said of them.

    `table`: T5's, (buckets, H), or None.
    """
    rule = rules.causal & config.rule if causal else config.rule
    if table is not None and config.relative is not None:
        rule &= rules.relative(table.data, config.relative.longest, not causal)
    return rule & more
