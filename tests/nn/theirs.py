"""Build and run a case of draws.py with PyTorch, the oracle."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
from tests.nn.draws import Array, Case, Part
from tests.oracles import oracle

torch = oracle("torch")
F = torch.nn.functional

torch.backends.mha.set_fastpath_enabled(False)
torch.set_num_threads(1)


class CustomEncoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, dtype: Any) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(width, width, dtype=dtype)

    def forward(self, src: Any, mask: Any, src_key_padding_mask: Any, is_causal: Any) -> Any:
        return self.mix(src)


class CustomDecoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, dtype: Any) -> None:
        super().__init__()
        self.own = torch.nn.Linear(width, width, dtype=dtype)
        self.other = torch.nn.Linear(width, width, dtype=dtype)

    def forward(self, tgt: Any, memory: Any, **masks: Any) -> Any:
        return self.own(tgt) * self.other(memory)


ACTIVATIONS = {
    "GELU()": torch.nn.GELU(),
    "GELU(tanh)": torch.nn.GELU("tanh"),
    "functional.gelu": F.gelu,
    "pair": lambda x: x * x,
}
CUSTOM = {"CustomEncoder": CustomEncoder, "CustomDecoder": CustomDecoder}
WITHOUT_DTYPE = {
    "Dropout", "GELU", "ReLU", "CrossEntropyLoss", "TransformerEncoder", "TransformerDecoder"
}  # fmt: skip


def tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def build(part: Part, dtype: str) -> Any:
    """Return the torch module that a part describes."""
    arguments = {
        name: build(value, dtype) if isinstance(value, Part) else tensor(value)
        for name, value in part.build.items()
    }
    if "activation" in arguments:
        arguments["activation"] = ACTIVATIONS.get(arguments["activation"], arguments["activation"])
    if part.kind not in WITHOUT_DTYPE:
        arguments["dtype"] = getattr(torch, dtype)
    with warnings.catch_warnings():  # torch warns of old argument names and of slow roads
        warnings.simplefilter("ignore")
        return (CUSTOM.get(part.kind) or getattr(torch.nn, part.kind))(**arguments)


def run(case: Case) -> dict[str, Array]:
    """Return the outputs, the gradients of the inputs and the gradients of the parameters."""
    inputs = {name: tensor(x).requires_grad_() for name, x in case.inputs.items()}
    arrays = list(inputs.values())
    if case.aliases:
        arrays = [inputs[case.aliases.get(name, name)] for name in ("query", "key", "value")]
    call = {name: tensor(value) for name, value in case.call.items()}
    module: Any = None
    if case.part.kind.startswith("functional."):
        f = getattr(F, case.part.kind.removeprefix("functional."))
    else:
        f = module = build(case.part, case.dtype)
        module.load_state_dict({name: tensor(value) for name, value in case.state.items()})
        module.train(case.training)
    with warnings.catch_warnings():  # torch warns that it will stop mixing bool and float masks
        warnings.simplefilter("ignore")
        y = f(*arrays, **call)
    many = [a for a in (y if isinstance(y, tuple) else (y,)) if a is not None]
    result = {f"output {i}": a.detach().numpy() for i, a in enumerate(many)}
    loss = sum((a * tensor(d)).sum() for a, d in zip(many, case.douts, strict=True))
    if loss.requires_grad:
        loss.backward()
    for name, x in inputs.items():
        result[f"gradient of {name}"] = _gradient(x)
    for name, parameter in module.named_parameters() if module else ():
        result[f"gradient of {name}"] = _gradient(parameter)
    return result


def _gradient(x: Any) -> Array:
    if x.grad is None:
        return np.zeros(tuple(x.shape))
    return np.asarray((x.grad.to_dense() if x.grad.is_sparse else x.grad).numpy())


def signature(name: str, method: str) -> dict[str, Any]:
    """Return a method's arguments and their defaults, device and dtype apart."""
    return {
        p.name: None if p.default is p.empty else ("F.relu" if p.default is F.relu else p.default)
        for p in inspect.signature(getattr(getattr(torch.nn, name), method)).parameters.values()
        if p.name not in ("self", "device", "dtype")
    }
