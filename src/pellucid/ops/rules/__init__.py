"""The parts of attention's rule, a page each; join them with `&`.

>>> from pellucid.ops import rules
>>> rule = rules.causal & rules.window(128) & rules.alibi
"""

from pellucid.ops.rule import Rule
from pellucid.ops.rules.bounded import bounded
from pellucid.ops.rules.causal import causal
from pellucid.ops.rules.dilated import dilated
from pellucid.ops.rules.distances import alibi, by_distance, relative
from pellucid.ops.rules.documents import documents
from pellucid.ops.rules.lengths import lengths
from pellucid.ops.rules.mask import mask
from pellucid.ops.rules.prefix import prefix
from pellucid.ops.rules.sinks import sinks
from pellucid.ops.rules.soft_cap import soft_cap
from pellucid.ops.rules.window import window

__all__ = [
    "Rule",
    "alibi",
    "bounded",
    "by_distance",
    "causal",
    "dilated",
    "documents",
    "lengths",
    "mask",
    "prefix",
    "relative",
    "sinks",
    "soft_cap",
    "window",
]
