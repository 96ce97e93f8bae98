"""The record of a family of checkpoints, and what reads its config.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pellucid.core.errors import UserError
from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.config import Activation, StackConfig
from pellucid.models.sizes import array_names
from pellucid.models.walk import UnsupportedError
from pellucid.ops.activations import ACTIVATIONS as OURS

ACTIVATIONS: dict[str, str] = {
    theirs: row.name for row in OURS.values() for theirs in row.huggingface
}
"""Our names of Hugging Face's activations."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
"""The gated forms of activations."""


def their_activation(name: str) -> str:
    """Return Hugging Face's name of an activation, or ours where it has none.

    >>> their_activation("gelu_tanh")
    'gelu_new'
    """
    return next(iter(OURS[name].huggingface), name)


class Theirs(NamedTuple):
    """Their arrays that make one of our tensors, stacked."""

    names: tuple[str, ...]
    transposed: bool = False
    """GPT-2 keeps its matrices as (in, out), torch's Linear as (out, in). A bias stays as it is."""
    skip: int = 0
    """Rows left out at the start."""
    first: bool = False
    """Only the first row, of a bias kept as (1, V)."""
    times: float = 1.0
    """Every number is multiplied by it."""
    plus: float = 0.0
    """Added to every number: Gemma keeps a norm's weight less one."""


Row = str | tuple[str, ...] | Theirs
Table = Mapping[str, Row]
"""Our tensors' names, and theirs. # is a layer's number, and * at the end weight or bias."""


class Family(NamedTuple):
    """How to read one kind of checkpoint."""

    model: Callable[..., CausalLM | MaskedLM | Seq2Seq]
    """Builds our model from a config."""
    prefix: str
    """How names begin in files of a model with a head; a bare model's have no prefix."""
    config: Callable[[Foreign], StackConfig]
    """From config.json to our settings."""
    names: Callable[[Any, Foreign], Table]
    """From (our settings, config.json) to their arrays of every tensor of ours, and of tensors that
    only other models of the family have."""
    unused: tuple[str, ...]
    """Parts of names of arrays that are no parameters, or that are not read."""
    specials: tuple[tuple[str, str, str], ...] = ()
    """The texts of the begin, end and mask tokens, where config.json does not give them; the first
    that a tokenizer has."""
    values: Callable[[Any], dict[str, Any]] | None = None
    """From our settings to config.json: `config` undone, for models of ours that the family may
    hold; None: none is written."""
    rewritten: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]] = lambda *ours: ours
    """From (our settings, arrays) to those of a model that computes the same, in the form that the
    family has: its order of features, its scales."""
    fixed: Callable[[Any], dict[str, Any]] = lambda _: {}
    """From our settings to arrays that the family's files have too, and that nothing learns."""
    apart: tuple[str, ...] = ()
    """Arrays whose names do not begin with `prefix` in files of a model with a head."""

    def sources(self, config: StackConfig, theirs: Foreign) -> dict[str, Theirs]:
        """Return their arrays of every tensor of the model that a config makes.

        Raises `UnsupportedError` for a tensor that the family has no name for.
        """
        table = self.names(config, theirs)
        found = {name: _row(table, name) for name in array_names(self.model, config)}
        if missing := [name for name, source in found.items() if source is None]:
            raise UnsupportedError(f"{theirs.path}: this family has no {', '.join(missing)}")
        return {name: source for name, source in found.items() if source is not None}


def _row(table: Table, name: str) -> Theirs | None:
    """Return the row of a tensor of ours, with a layer's number and a kind filled in."""
    number, kind = re.search(r"\.(\d+)\.", name), re.search(r"(weight|bias)$", name)
    pattern = name.replace(number[0], ".#.") if number else name
    row = table.get(pattern, table.get(re.sub(r"(weight|bias)$", "*", pattern)))
    if row is None:
        return None
    source = row if isinstance(row, Theirs) else Theirs((row,) if isinstance(row, str) else row)
    names = (each.replace("#", number[1]) if number else each for each in source.names)
    filled = tuple(each.replace("*", kind[1]) if kind else each for each in names)
    matrix = name.endswith("weight")
    return source._replace(names=filled, transposed=source.transposed and matrix)


class Foreign:
    """A config.json whose values are checked as they are read, and the names of the `arrays`."""

    def __init__(self, values: Mapping[str, Any], path: Path, arrays: Collection[str] = ()) -> None:
        self.values, self.path, self.arrays = values, path, arrays

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number. Raises `UserError` when it is absent (without default)."""
        return cast(int, self._get(name, (int,), default))

    def number(self, name: str, default: float) -> float:
        """Return a number."""
        return float(self._get(name, (int, float), default))

    def maybe_whole(self, name: str) -> int | None:
        """Return a whole number, or None where there is none."""
        return None if self.values.get(name) is None else self.whole(name)

    def text(self, name: str, default: str) -> str:
        """Return a text."""
        return cast(str, self._get(name, (str,), default))

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        return cast(bool, self._get(name, (bool,), default))

    def first(self, name: str, default: int) -> int:
        """Return a whole number, or the first of a list of them."""
        return next(iter(self.tokens(name)), default)

    def tokens(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, or one by itself; nothing where there are none."""
        value = self.values.get(name)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if any(type(token) is not int for token in found):
            raise self.fault(f"{name} = {value!r}; expected int")
        return tuple(found)

    def activation(self, name: str, default: str) -> Activation:
        """Return our name of an activation. Raises `UserError` when there is none."""
        theirs = self.text(name, default)
        if theirs not in ACTIVATIONS:
            raise self.fault(f"{name} = {theirs!r}; expected one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[theirs]

    def gated(self, name: str, default: str) -> Activation:
        """Return our name of the gated form of an activation."""
        plain = self.activation(name, default)
        if plain not in GATED:
            raise self.fault(f"{name} = {plain!r} has no gated form here: {', '.join(GATED)} have")
        return GATED[plain]

    def only(self, name: str, allowed: Any) -> None:
        """Raise `UserError` when a setting has a value that no model here has."""
        value = self.values.get(name)
        if value is not None and value != allowed:
            raise self.fault(f"{name} = {value!r} is not supported, only {allowed!r}")

    def fault(self, text: str) -> UserError:
        """Return an error that names the file."""
        return UserError(f"{self.path}: {text}")

    def _get(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise self.fault(f"{name} is missing")
        if type(value) not in kinds:
            raise self.fault(f"{name} = {value!r}; expected {kinds[-1].__name__}")
        return value
