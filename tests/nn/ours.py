"""Build and run a case of draws.py with Pellucid. Knows nothing of torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.nn.draws import Array, Case, Counts, Draw, Part, draw_case, random_state

import pellucid
from pellucid import nn
from pellucid.nn import functional

Result = dict[str, Array]
"""Everything that is compared, by name: outputs, weights and gradients."""


class CustomEncoder(nn.Module):
    """A user's own encoder: it need only return (memory, backward)."""

    def __init__(self, width: int, dtype: Any) -> None:
        self.mix = nn.Linear(width, width, dtype=dtype)

    def forward(self, src: Array, mask: Any, src_key_padding_mask: Any, is_causal: Any) -> Any:
        return self.mix.forward(src)


class CustomDecoder(nn.Module):
    """A user's own decoder: its backward returns (dtgt, dmemory)."""

    def __init__(self, width: int, dtype: Any) -> None:
        self.own, self.other = (nn.Linear(width, width, dtype=dtype) for _ in range(2))

    def forward(self, tgt: Array, memory: Array, **masks: Any) -> Any:
        y, own_backward = self.own.forward(tgt)
        z, other_backward = self.other.forward(memory)
        return y * z, lambda dy: (own_backward(dy * z), other_backward(dy * y))


ACTIVATIONS = {
    "GELU()": nn.GELU(),
    "GELU(tanh)": nn.GELU("tanh"),
    "functional.gelu": functional.gelu,
    "pair": pellucid.pair(lambda x: (x * x, x), lambda dy, x: 2 * x * dy),
}
CUSTOM = {"CustomEncoder": CustomEncoder, "CustomDecoder": CustomDecoder}
WITHOUT_DTYPE = {
    "Dropout", "GELU", "ReLU", "CrossEntropyLoss", "TransformerEncoder", "TransformerDecoder"
}  # fmt: skip


def build(part: Part, dtype: str) -> Any:
    """Return the module that a part describes."""
    arguments = {
        name: build(value, dtype) if isinstance(value, Part) else value
        for name, value in part.build.items()
    }
    if "activation" in arguments:
        arguments["activation"] = ACTIVATIONS.get(arguments["activation"], arguments["activation"])
    if part.kind not in WITHOUT_DTYPE:
        arguments["dtype"] = np.dtype(dtype)
    return (CUSTOM.get(part.kind) or getattr(nn, part.kind))(**arguments)


def complete(kind: str, seed: int, counts: Counts | None = None) -> Case:
    """Return case number `seed` of a class, with weights and upstream gradients that fit it."""
    case = draw_case(kind, seed, counts)
    draw = Draw(kind + " values", seed)
    draw.dtype = case.dtype
    if "." not in case.part.kind:
        module = build(case.part, case.dtype)
        shapes = {name: p.shape for name, p in module.all_names()}
        case.state = module.state_dict() | random_state(draw, shapes)
    case.douts = [draw.array(*np.shape(y)) for y in outputs(case).values()]
    return case


def outputs(case: Case) -> Result:
    """Return the outputs of the case alone."""
    return _named(_start(case)[1])


def _start(case: Case) -> tuple[Any, Any, Any]:
    arrays = [case.inputs[case.aliases.get(name, name)] for name in _order(case)]
    if case.part.kind.startswith("functional."):
        function = getattr(functional, case.part.kind.removeprefix("functional."))
        return None, *function.forward(*arrays, **case.call)
    module = build(case.part, case.dtype)
    module.load_state_dict(case.state)
    module.train(case.training)
    rng = {"rng": pellucid.Rng(0)} if case.part.kind == "Dropout" else {}
    return module, *module.forward(*arrays, **case.call, **rng)


def _order(case: Case) -> list[str]:
    if not case.aliases:
        return list(case.inputs)
    return ["query", "key", "value"]


def _named(y: Any) -> Result:
    many = y if isinstance(y, tuple) else (y,)
    return {f"output {i}": np.asarray(a) for i, a in enumerate(many) if a is not None}


def run(case: Case) -> Result:
    """Return the outputs, the gradients of the inputs and the gradients of the parameters."""
    module, y, backward = _start(case)
    result = _named(y)
    gradients = backward(*case.douts)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    for name, gradient in zip(_order(case), gradients, strict=False):
        source = f"gradient of {case.aliases.get(name, name)}"
        result[source] = result[source] + gradient if source in result else gradient
    for name, parameter in module.named_parameters() if module else ():
        gradient = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad
        result[f"gradient of {name}"] = gradient
    return result


def signature(name: str, method: str) -> dict[str, Any]:
    """Return the arguments of a method that can be given by position, and their defaults."""
    return _positional(getattr(getattr(nn, name), method), {functional.relu: "F.relu"})


def function_signature(name: str) -> dict[str, Any]:
    """The same for a function of pellucid.nn.functional."""
    return _positional(getattr(functional, name).forward, {})


def _positional(f: Callable[..., Any], names: dict[Any, str]) -> dict[str, Any]:
    return {
        p.name: None if p.default is p.empty else names.get(p.default, p.default)
        for p in inspect.signature(f).parameters.values()
        if p.name != "self" and p.kind is p.POSITIONAL_OR_KEYWORD
    }
