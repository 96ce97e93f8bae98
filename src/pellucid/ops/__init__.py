"""The mathematics: every function with its derivative right under it, and no state anywhere.

`f(x, …) -> (y, saved)` and `f_backward(dy, saved) -> dx, …`. The arrays alone give the dtype: a
number (a scale, a probability) is made Python's float, because NumPy's float64 would widen float32.
NumPy adds float16 up in float16, so that `nn` refuses it; here only GELU and LayerNorm widen it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.ops.add_dropout_norm import add_dropout_norm, add_dropout_norm_backward
    from pellucid.ops.alibi import alibi
    from pellucid.ops.attention import attention, attention_backward, causal_mask
    from pellucid.ops.attention_weights import attention_weights, attention_weights_backward
    from pellucid.ops.bias_act_dropout import bias_act_dropout, bias_act_dropout_backward
    from pellucid.ops.cross_entropy import cross_entropy, cross_entropy_backward
    from pellucid.ops.dropout import dropout, dropout_backward
    from pellucid.ops.embedding import embedding, embedding_backward, sinusoidal
    from pellucid.ops.geglu import geglu, geglu_backward
    from pellucid.ops.gelu import gelu, gelu_backward
    from pellucid.ops.head_scale import head_scale, head_scale_backward
    from pellucid.ops.layer_norm import layer_norm, layer_norm_backward
    from pellucid.ops.leaky_relu import leaky_relu, leaky_relu_backward
    from pellucid.ops.linear import linear, linear_backward
    from pellucid.ops.linear_cross_entropy import (
        linear_cross_entropy,
        linear_cross_entropy_backward,
    )
    from pellucid.ops.norm_rotate import norm_rotate, norm_rotate_backward
    from pellucid.ops.packed_attention import packed_attention, packed_attention_backward
    from pellucid.ops.relative_buckets import relative_buckets
    from pellucid.ops.relu import relu, relu_backward
    from pellucid.ops.rms_norm import rms_norm, rms_norm_backward
    from pellucid.ops.rotary import rotary, rotary_backward
    from pellucid.ops.scale_norm import scale_norm, scale_norm_backward
    from pellucid.ops.share_heads import share_heads, share_heads_backward
    from pellucid.ops.silu import silu, silu_backward
    from pellucid.ops.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
    from pellucid.ops.swiglu import swiglu, swiglu_backward

__all__ = [
    "add_dropout_norm",
    "add_dropout_norm_backward",
    "alibi",
    "attention",
    "attention_backward",
    "attention_weights",
    "attention_weights_backward",
    "bias_act_dropout",
    "bias_act_dropout_backward",
    "causal_mask",
    "cross_entropy",
    "cross_entropy_backward",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "geglu",
    "geglu_backward",
    "gelu",
    "gelu_backward",
    "head_scale",
    "head_scale_backward",
    "layer_norm",
    "layer_norm_backward",
    "leaky_relu",
    "leaky_relu_backward",
    "linear",
    "linear_backward",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "log_softmax",
    "log_softmax_backward",
    "norm_rotate",
    "norm_rotate_backward",
    "packed_attention",
    "packed_attention_backward",
    "relative_buckets",
    "relu",
    "relu_backward",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "rotary_backward",
    "scale_norm",
    "scale_norm_backward",
    "share_heads",
    "share_heads_backward",
    "silu",
    "silu_backward",
    "sinusoidal",
    "softmax",
    "softmax_backward",
    "swiglu",
    "swiglu_backward",
]

_PAGES = {"causal_mask": "attention", "log_softmax": "softmax", "sinusoidal": "embedding"}
"""The page of a function that is not named after it."""


def __getattr__(name: str) -> Any:
    """Import a function's page when it is first used, so that one page alone loads little else."""
    if name not in __all__:
        raise AttributeError(f"module 'pellucid.ops' has no attribute {name!r}")
    page = name.removesuffix("_backward")
    function = getattr(import_module(f"pellucid.ops.{_PAGES.get(page, page)}"), name)
    globals()[name] = function
    return function


class _Ops(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a page sets the module under the name of its function.
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Ops
