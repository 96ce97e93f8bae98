"""The attention rules, one file each; combine them with `&`.

>>> from pellucid.ops import rules
>>> rule = rules.causal & rules.window(128) & rules.alibi
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
