"""Convert modules to and from PyTorch with their weights and gradients.

Classes, arguments and parameters have the same names in both libraries, so one table describes both
directions.
"""

import functools
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.core.errors import UserError
from pellucid.kernels.device import import_torch
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
"""Constructor arguments of modules that are converted as a whole. Attributes of the same names hold
them, except those that state whether a parameter exists."""
PRESENT = {"add_bias_kv": "bias_k"}
"""Arguments that state whether a parameter of another name exists."""

LAYERS = ("TransformerEncoderLayer", "TransformerDecoderLayer")
STACKS = ("TransformerEncoder", "TransformerDecoder")
KNOWN = ("Transformer", *STACKS, *LAYERS, *LEAVES)


def to_torch(module: nn.Module) -> Any:
    """Convert a module to PyTorch's of the same class, with weights and gradients.

    The classes are Transformer, its encoder and decoder, their layers, MultiheadAttention, Linear,
    LayerNorm, Embedding, Dropout, ReLU, LeakyReLU, SiLU and GELU. Dropout probabilities, frozen
    parameters and the mode (train or eval) are kept. Arrays are copied, in the same dtype, a shared
    parameter once for each place; they must be NumPy's, so move a module from a GPU back first:
    `module.to(np.empty(0))`.

    Raises `UserError` if PyTorch is not installed, and for a module without a counterpart there:
    another class (such as the layers of `pellucid.models`), another activation, a scale of the
    scores other than 1/√D, a stack without layers.

    >>> layer = nn.Linear(3, 2)
    >>> to_torch(layer).weight.shape  # doctest: +SKIP
    torch.Size([2, 3])
    """
    torch = import_torch("to_torch")
    return _ToTorch(torch).convert(module)


def from_torch(module: Any) -> nn.Module:
    """Convert a PyTorch module to Pellucid's of the same class, as `to_torch` reversed.

    Weights and gradients are equal in every array after a round trip. Raises `UserError` if PyTorch
    is not installed, for a module without a counterpart (another class, an activation without a
    derivative here, `max_norm` of an Embedding, bfloat16 or float16, a stack without layers), for
    tensors on the device meta, and for what would be lost: hooks, a `forward` of the object's own,
    shared parameters, and further arrays.
    """
    converter = _FromTorch(import_torch("from_torch"))
    _check_plain(module)
    twin: nn.Module = converter.convert(module)
    if lost := [name for name in module.state_dict() if name not in twin.state_dict()]:
        raise UserError(
            f"{', '.join(lost)} is no part of the modules that were converted and would be lost; "
            "take it off first"
        )
    return twin


def _check_plain(module: Any) -> None:
    """Raise `UserError` for hooks, a replaced `forward`, and shared parameters."""
    for name, part in module.named_modules():
        own = [x for x in vars(part) if x.endswith("_hooks") and vars(part)[x]]
        own += ["forward of its own"] * ("forward" in vars(part))
        if own:
            raise UserError(
                f"{name or 'the module'} has {', '.join(own)}, which cannot be converted; remove "
                "them first (torch.nn.utils.remove_weight_norm, the handle's remove())"
            )
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(parameter), name)) != name:
            raise UserError(
                f"{first} and {name} are one parameter, of which two would be made; copy the "
                "module first so that each has its own"
            )


class _Converter(ABC):
    """Converts modules of one library to the other; a subclass for each direction."""

    here: Any
    """The library to convert from."""
    there: Any
    """The library to convert to."""

    def convert(self, module: Any) -> Any:
        """Convert a module and its parts."""
        kind = self.kind(module)
        if kind in STACKS:
            twin = self.stack(kind, module)
        else:
            twin = getattr(self.there, kind)(**self.arguments(kind, module))
        if kind in LEAVES:
            self.copy(module, twin)
        elif kind not in STACKS:
            parts = module.parts() if isinstance(module, nn.Module) else module.named_children()
            for name, part in parts:
                if hasattr(twin, name) and name != "activation":  # an argument
                    setattr(twin, name, self.convert(part))
        twin.training = module.training
        return twin

    def kind(self, module: Any) -> str:
        """Return the class name of a module, which both libraries share."""
        for known in KNOWN:
            if type(module) is getattr(self.here, known):
                return known
        raise UserError(
            f"{type(module).__module__}.{type(module).__name__} has no twin in "
            f"{self.there.__name__}; expected one of {', '.join(KNOWN)}"
        )

    def arguments(self, kind: str, module: Any) -> dict[str, Any]:
        """Return the constructor arguments for the other library's module.

        The parts that they create are placeholders, which `convert` replaces by converted ones.
        """
        if kind == "Transformer":
            parts = dict.fromkeys(("custom_encoder", "custom_decoder"), self.there.Dropout())
            return {n: getattr(module, n) for n in ("d_model", "nhead", "batch_first")} | parts
        if kind in LAYERS:
            holder = module if hasattr(module, "batch_first") else module.self_attn  # PyTorch's
            return {
                "d_model": module.linear1.in_features,
                "nhead": 1,
                "dim_feedforward": 1,
                "batch_first": holder.batch_first,
                "norm_first": module.norm_first,
                "bias": module.linear1.bias is not None,
                "activation": self.activation(module.activation),
            }
        present = {"bias": "in_proj_bias" if kind == "MultiheadAttention" else "bias"} | PRESENT
        arguments = {
            name: getattr(module, present[name]) is not None
            if name in present
            else getattr(module, name)
            for name in LEAVES[kind]
        }
        first = next(iter(module.parameters()), None)
        return arguments if first is None else arguments | {"dtype": self.dtype(first)}

    def stack(self, kind: str, module: Any) -> Any:
        """Make the other library's stack of converted layers and the converted norm."""
        if not len(module.layers):
            raise UserError("a stack of 0 layers has no twin: PyTorch's cannot be run")
        layers = [self.convert(layer) for layer in module.layers]
        norm = None if module.norm is None else self.convert(module.norm)
        # torch's encoder would warn of a fast path that it cannot take with these layers.
        options = {"enable_nested_tensor": False} if kind == "TransformerEncoder" else {}
        twin = getattr(self.there, kind)(layers[0], len(layers), norm, **options)
        twin.layers = self.there.ModuleList(layers)  # those it holds are copies of the first
        return twin

    @abstractmethod
    def dtype(self, parameter: Any) -> Any:
        """Return the other library's dtype for a parameter."""

    def copy(self, module: Any, twin: Any) -> None:
        """Copy weights, gradients, and which parameters are frozen."""
        twins = dict(twin.named_parameters())
        for name, parameter in module.named_parameters():
            twins[name].data = self.array(parameter.data)
            twins[name].requires_grad = parameter.requires_grad
            if parameter.grad is not None:
                twins[name].grad = self.array(parameter.grad)

    @abstractmethod
    def array(self, array: Any) -> Any:
        """Return a copy of an array in the other library."""

    @abstractmethod
    def activation(self, activation: Any) -> Any:
        """Return the other library's activation."""


class _ToTorch(_Converter):
    def __init__(self, torch: Any) -> None:
        self.torch, self.here, self.there = torch, nn, torch.nn

    def arguments(self, kind: str, module: Any) -> dict[str, Any]:
        if kind == "MultiheadAttention":
            _check_scale(module.config)
        return super().arguments(kind, module)

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

    def arguments(self, kind: str, module: Any) -> dict[str, Any]:
        if kind == "Embedding" and module.max_norm is not None:
            raise UserError("Embedding(max_norm=…) has no twin: no lookup writes to a table here")
        return super().arguments(kind, module)

    def array(self, array: Any) -> Any:
        if array.is_meta:
            raise UserError("a tensor of the device meta holds no numbers: load its weights first")
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


def _check_scale(c: AttentionConfig) -> None:
    """Raise `UserError` for an attention whose scale is not PyTorch's 1/√D."""
    usual = c.scale is None or (
        not isinstance(c.scale, str) and math.isclose(c.scale, c.head_width**-0.5, rel_tol=1e-12)
    )
    if not usual:
        own = "what each head has learned" if isinstance(c.scale, str) else c.scale
        raise UserError(
            f"PyTorch's MultiheadAttention scales scores by 1/√D, this one by {own}; it has no twin"
        )
