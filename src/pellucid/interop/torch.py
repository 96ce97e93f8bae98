"""Modules to and from PyTorch: the same class, the same arguments, weights and gradients.

Classes, arguments and parameters have the same names in both libraries, so one table reads either.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.core.device import import_torch
from pellucid.core.errors import UserError
from pellucid.models.layers import DecoderLayer, EncoderLayer
from pellucid.nn.attention import Attention
from pellucid.nn.config import AttentionConfig

LEAVES: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx", "scale_grad_by_freq"),
    "MultiheadAttention": (
        "embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim",
        "batch_first",
    ),
    "Dropout": ("p",),
    "ReLU": (),
    "LeakyReLU": ("negative_slope",),
    "SiLU": (),
    "GELU": ("approximate",),
}  # fmt: skip
"""The arguments of modules without parts of their own; attributes of the same names keep them."""
PRESENT = {"add_bias_kv": "bias_k"}
"""Arguments that say whether there is a parameter of another name."""

LAYERS = ("TransformerEncoderLayer", "TransformerDecoderLayer")
STACKS = ("TransformerEncoder", "TransformerDecoder")
KNOWN = ("Transformer", *STACKS, *LAYERS, *LEAVES)
PARTS = (
    "self_attn", "multihead_attn", "linear1", "dropout", "linear2",
    "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3",
)  # fmt: skip


def to_torch(module: nn.Module) -> Any:
    """Return PyTorch's module of the same class, with the same weights and gradients.

    Transformer, its encoder and decoder, their layers, MultiheadAttention, Linear, LayerNorm,
    Embedding and the activations. Dropout probabilities, frozen parameters, train or eval come
    along. Arrays are copied; the module is on the CPU, in the same dtype.

    Raises `UserError` when PyTorch is not installed, and for what it does not have: another
    class, a scale of the scores that is not 1/√D, more feed-forward networks, no layers.

    >>> layer = nn.Linear(3, 2)
    >>> to_torch(layer).weight.shape  # doctest: +SKIP
    torch.Size([2, 3])
    """
    torch = import_torch("to_torch")
    return _ToTorch(torch).convert(module)


def from_torch(module: Any) -> nn.Module:
    """Return our module of the same class as PyTorch's, with the same weights and gradients.

    The inverse of `to_torch`: what it gives back is equal in every array.

    Raises `UserError` for a module that has no twin here (another class, an activation without a
    derivative here, bfloat16 or float16).
    """
    twin: nn.Module = _FromTorch(import_torch("from_torch")).convert(module)
    return twin


class _Converter(ABC):
    """From modules of one library to modules of the other."""

    here: Any
    """The library converted from."""
    there: Any
    """The library converted to."""

    def convert(self, module: Any) -> Any:
        """Return the twin of a module."""
        kind = self.kind(module)
        if kind in LEAVES:
            twin = self.leaf(kind, module)
        elif kind in LAYERS:
            twin = self.layer(kind, module)
        elif kind in STACKS:
            twin = self.stack(kind, module)
        else:
            twin = self.there.Transformer(
                module.d_model,
                module.nhead,
                custom_encoder=self.convert(module.encoder),
                custom_decoder=self.convert(module.decoder),
                batch_first=module.batch_first,
            )
            self.copy(module.encoder, twin.encoder)  # Transformer drew their weights anew
            self.copy(module.decoder, twin.decoder)
        twin.training = module.training
        return twin

    def kind(self, module: Any) -> str:
        """Return the name that both libraries know the module's class by."""
        for known in KNOWN:
            if type(module) is getattr(self.here, known):
                return known
        raise UserError(
            f"{type(module).__module__}.{type(module).__name__} has no twin in "
            f"{self.there.__name__}; expected one of {', '.join(KNOWN)}"
        )

    def leaf(self, kind: str, module: Any) -> Any:
        """Return the twin of a module without parts."""
        first = next(iter(module.parameters()), None)
        dtype = {} if first is None else {"dtype": self.dtype(first)}
        twin = getattr(self.there, kind)(**self.arguments(kind, module), **dtype)
        self.copy(module, twin)
        return twin

    def arguments(self, kind: str, module: Any) -> dict[str, Any]:
        """Return what a module without parts was built with."""
        present = {"bias": "in_proj_bias" if kind == "MultiheadAttention" else "bias"} | PRESENT
        return {
            name: getattr(module, present[name]) is not None
            if name in present
            else getattr(module, name)
            for name in LEAVES[kind]
        }

    def layer(self, kind: str, module: Any) -> Any:
        """Return the twin of a layer: built alike, then given the twins of its parts."""
        twin = getattr(self.there, kind)(
            module.linear1.in_features,
            1,  # its attention gives way to the twin of this one's
            module.linear1.out_features,
            batch_first=self.batch_first(module),
            norm_first=module.norm_first,
            bias=module.linear1.bias is not None,
            activation=self.activation(module.activation),
        )
        for name in PARTS:
            if hasattr(module, name):
                setattr(twin, name, self.convert(getattr(module, name)))
        return twin

    def stack(self, kind: str, module: Any) -> Any:
        """Return the twin of a stack."""
        if not len(module.layers):
            raise UserError("a stack of 0 layers has no twin: PyTorch's cannot be run")
        layers = [self.convert(layer) for layer in module.layers]
        norm = None if module.norm is None else self.convert(module.norm)
        # torch's encoder would warn of a fast path that it cannot take with these layers.
        options = {"enable_nested_tensor": False} if kind == "TransformerEncoder" else {}
        twin = getattr(self.there, kind)(layers[0], len(layers), norm, **options)
        twin.layers = self.there.ModuleList(layers)  # those it holds are copies of the first
        return twin

    def batch_first(self, layer: Any) -> bool:
        """Return a layer's argument; PyTorch's keeps it in its attention."""
        holder = layer if hasattr(layer, "batch_first") else layer.self_attn
        return bool(holder.batch_first)

    @abstractmethod
    def dtype(self, parameter: Any) -> Any:
        """Return the other library's dtype."""

    def copy(self, module: Any, twin: Any) -> None:
        """Copy weights, gradients, and what is frozen."""
        twins = dict(twin.named_parameters())
        for name, parameter in module.named_parameters():
            twins[name].data = self.array(parameter.data)
            twins[name].requires_grad = parameter.requires_grad
            if parameter.grad is not None:
                twins[name].grad = self.array(parameter.grad)

    @abstractmethod
    def array(self, array: Any) -> Any:
        """Return a copy in the other library."""

    @abstractmethod
    def activation(self, activation: Any) -> Any:
        """Return the other library's activation."""


class _ToTorch(_Converter):
    def __init__(self, torch: Any) -> None:
        self.torch, self.here, self.there = torch, nn, torch.nn

    def kind(self, module: Any) -> str:
        # A layer of pellucid.models with one feed-forward network is the plain layer.
        known = {EncoderLayer: LAYERS[0], DecoderLayer: LAYERS[1]}.get(type(module))
        if known is not None and not len(module.before) + len(module.after):
            return known
        return "MultiheadAttention" if type(module) is Attention else super().kind(module)

    def arguments(self, kind: str, module: Any) -> dict[str, Any]:
        if type(module) is not Attention:
            return super().arguments(kind, module)
        return {  # the attention of our models
            "embed_dim": module.config.embed_dim,
            "num_heads": module.config.num_heads,
            "dropout": module.dropout,
            "bias": module.in_proj_bias is not None,
            "batch_first": True,
        }

    def leaf(self, kind: str, module: Any) -> Any:
        if kind == "MultiheadAttention" and (own := _own_scale(module.config)):
            raise UserError(
                f"PyTorch's MultiheadAttention scales scores by 1/√D, this one by {own}; "
                "it has no twin"
            )
        return super().leaf(kind, module)

    def dtype(self, parameter: Any) -> Any:
        return getattr(self.torch, parameter.data.dtype.name)

    def array(self, array: Any) -> Any:
        return self.torch.from_numpy(np.array(array))

    def activation(self, activation: Any) -> Any:
        # Not GELU("tanh"): in eval mode the encoder's fast path would compute the exact one.
        tanh = functools.partial(self.torch.nn.functional.gelu, approximate="tanh")
        if activation == "gelu_tanh":
            return tanh
        if isinstance(activation, str):
            if (found := getattr(self.torch.nn.functional, activation, None)) is None:
                raise UserError(f"activation {activation} has no twin in PyTorch")
            return found
        exact = type(activation) is not nn.GELU or activation.approximate == "none"
        return self.convert(activation) if exact else tanh


class _FromTorch(_Converter):
    def __init__(self, torch: Any) -> None:
        self.torch, self.here, self.there = torch, torch.nn, nn

    def dtype(self, parameter: Any) -> Any:
        dtype = self.array(parameter).dtype
        if dtype == np.float16:
            raise UserError(
                "a module of float16 is not computed with here; convert the module with .float() "
                "first"
            )
        return dtype

    def leaf(self, kind: str, module: Any) -> Any:
        if kind == "Embedding" and module.max_norm is not None:
            raise UserError("Embedding(max_norm=…) has no twin: no lookup writes to a table here")
        return super().leaf(kind, module)

    def array(self, array: Any) -> Any:
        tensor = array.detach().cpu()
        try:
            return np.array(tensor.numpy(), order="C")  # as the kernels take it
        except TypeError:
            raise UserError(
                f"{tensor.dtype} is no dtype of NumPy's; convert the module with .float() first"
            ) from None

    def activation(self, activation: Any) -> Any:
        f = self.torch.nn.functional
        for name in ("relu", "gelu", "silu", "leaky_relu"):
            if activation in (getattr(f, name), getattr(self.torch, name, None)):
                return name
        if isinstance(activation, functools.partial) and activation.func is f.gelu:
            return "gelu_tanh" if activation.keywords == {"approximate": "tanh"} else "gelu"
        if isinstance(activation, self.torch.nn.Module):
            return self.convert(activation)
        raise UserError(f"activation {activation!r} has no twin with a derivative here")


def _own_scale(attention: AttentionConfig) -> str:
    """Say what multiplies the scores, if it is not 1/√D."""
    scale = attention.scale
    if isinstance(scale, str):
        return "what each head has learned"
    usual = scale is None or math.isclose(scale, attention.head_width**-0.5, rel_tol=1e-12)
    return "" if usual else str(scale)
