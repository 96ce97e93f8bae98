"""A family of Hugging Face checkpoints: its TOML file, and code to read config.json.

The file NAME.toml has everything that can be written as a table:

    like       another family, whose entries hold where this file has none
    model      Pellucid's class; prefix: beginning of array names in files of a model with a head
    unused     parts of the names of arrays that are no parameters, or that are not read
    specials   texts of the begin, end and mask tokens, whose ids the tokenizer gives instead of
               config.json; the first line of which it has all
    only       settings of Hugging Face, and the one value of each that Pellucid supports
    settings   Pellucid's settings: Hugging Face's name and, if it may be missing, a default
    fixed      Pellucid's settings that are the same in all models of the family
    names      Pellucid's names of tensors, and Hugging Face's: # is a layer's number, * at the end
               weight or bias, {q,k,v} several arrays, stacked; or a table with the fields of
               `Theirs`, the name being `of`
    tied       Hugging Face's name of the output layer's weight if it is the token embedding
    labels     the output layer of classifiers, whose file is named NAME-labels.toml

The subclasses of `Family` say which further entries they read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from pellucid import models
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import KINDS, SPECIALS, Tokenizer
from pellucid.models.config import Activation, Seq2SeqConfig, StackConfig
from pellucid.models.sizes import array_names
from pellucid.models.walk import UnsupportedError
from pellucid.ops.activations import ACTIVATIONS as OURS
from pellucid.system.files import read_toml

ACTIVATIONS: dict[str, str] = {
    theirs: row.name for row in OURS.values() for theirs in row.huggingface
}
"""Pellucid's names of Hugging Face's activations."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
"""The gated forms of activations."""
Settings = dict[str, Any]


class Theirs(NamedTuple):
    """The Hugging Face arrays that make one Pellucid tensor, and how."""

    names: tuple[str, ...]
    transposed: bool = False
    """Whether matrices are stored as (in, out), as in GPT-2, and not as (out, in); biases are not
    affected."""
    skip: int = 0
    """Number of rows to leave out at the start."""
    more: int = 0
    """Number of rows of zeros to put in front, for Pellucid's special tokens among the labels."""
    first: bool = False
    """Whether to take only the first row, of a bias stored as (1, V)."""
    times: float = 1.0
    """Factor for all numbers."""
    plus: float = 0.0
    """Number to add to all numbers; Gemma stores the weight of a norm minus 1."""


Row = str | Mapping[str, Any]
Table = Mapping[str, Row]
"""Hugging Face's names of tensors, by Pellucid's names."""


def page_of(name: str) -> dict[str, Any]:
    """Read the TOML file of a family, merged with that of the family it is like."""
    own = read_toml(Path(__file__).with_name(f"{name}.toml"))
    page = page_of(own.pop("like")) if "like" in own else {}
    for key, value in own.items():
        page[key] = page.get(key, {}) | value if isinstance(value, dict) else value
    return page


class Family:
    """Reads one family of checkpoints.

    A subclass overrides methods for whatever the family's TOML file cannot express.
    """

    def __init__(self, name: str) -> None:
        self.page = page = page_of(name)
        self.model: Any = getattr(models, page["model"])
        self.config_class: type[StackConfig] = getattr(models, f"{page['model']}Config")
        self.prefix, self.unused = page["prefix"], page["unused"]
        self.specials = page.get("specials", ())

    def given(self, theirs: Foreign) -> Settings:
        """Return Hugging Face settings that replace those of config.json."""
        return {}

    def read(self, theirs: Foreign) -> Settings:
        """Return Pellucid settings that must be computed from Hugging Face's."""
        return {}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return entries of `names` that depend on the settings or on the arrays in the file."""
        return {}

    def config(self, theirs: Foreign) -> StackConfig:
        """Return the config of the Pellucid model that config.json describes."""
        theirs = Foreign({**theirs.values, **self.given(theirs)}, theirs.path, theirs.arrays)
        for name, value in self.page.get("only", {}).items():
            theirs.only(name, value)
        kinds, asked = get_type_hints(self.config_class), self.page["settings"]
        found = {ours: theirs.setting(kinds[ours], *names) for ours, names in asked.items()}
        return self.config_class(**found | self.page.get("fixed", {}) | self.read(theirs))

    def names(self, config: Any, theirs: Foreign) -> Table:
        """Return the names of Hugging Face arrays for all tensors that the family may have."""
        table: dict[str, Row] = dict(self.page["names"])
        if config.ties_output if isinstance(config, Seq2SeqConfig) else config.tie_word_embeddings:
            table["output.weight"] = self.page["tied"]
        return {**table, **self.renamed(config, theirs)}

    def sources(self, config: Any, theirs: Foreign) -> dict[str, Theirs]:
        """Return the Hugging Face arrays for every tensor of the model of a config.

        Raises `UnsupportedError` for a tensor that the family has no name for.
        """
        table = self.names(config, theirs)
        found = {name: _row(table, name) for name in array_names(self.model, config)}
        if missing := [name for name, source in found.items() if source is None]:
            raise UnsupportedError(f"{theirs.path}: this family has no {', '.join(missing)}")
        return {name: source for name, source in found.items() if source is not None}


def _row(table: Table, name: str) -> Theirs | None:
    """Return the Hugging Face arrays that make a Pellucid tensor; None if the table lacks it.

    The layer's number, and weight or bias, are filled in.
    """
    number, kind = re.search(r"\.(\d+)\.", name), re.search(r"(weight|bias)$", name)
    pattern = name.replace(number[0], ".#.") if number else name
    row = table.get(pattern, table.get(re.sub(r"(weight|bias)$", "*", pattern)))
    if row is None:
        return None
    fields = {"of": row} if isinstance(row, str) else dict(row)
    of = fields.pop("of").replace("#", number[1] if number else "#")
    of = of.replace("*", kind[1] if kind else "*")
    several = re.fullmatch(r"(.*){(.*)}(.*)", of)
    names = [several[1] + each + several[3] for each in several[2].split(",")] if several else [of]
    source = Theirs(tuple(names), **fields)
    return source._replace(transposed=source.transposed and name.endswith("weight"))


class Foreign:
    """A config.json of Hugging Face whose values are checked when they are read.

    A value of another type raises `UserError`; null counts as missing. arrays: the names of the
    arrays in the weights file.
    """

    def __init__(self, values: Mapping[str, Any], path: Path, arrays: Collection[str] = ()) -> None:
        self.values, self.path, self.arrays = values, path, arrays

    def setting(self, kind: Any, name: str, default: Any = None) -> Any:
        """Return a value converted to the type of a Pellucid setting.

        kind: that type; name: Hugging Face's name; default: if the value is missing. Of a list of
        token ids it is the first.
        """
        if name in ("bos_token_id", "eos_token_id", "decoder_start_token_id"):
            return self.first(name, default)
        if kind == int | None and default is None:
            return self.maybe_whole(name)
        if kind in (int, int | None):
            return self.whole(name, default)
        if kind is bool:
            return self.flag(name, default)
        return self.activation(name, default) if kind is Activation else self.number(name, default)

    def whole(self, name: str, default: int | None = None) -> int:
        """Return an integer. Raises `UserError` if it is none, or missing without a default."""
        return cast(int, self._get(name, (int,), default))

    def number(self, name: str, default: float) -> float:
        """Return a number as a float; an integer is one too."""
        return float(self._get(name, (int, float), default))

    def maybe_whole(self, name: str) -> int | None:
        """Return an integer, or None if it is missing."""
        return None if self.values.get(name) is None else self.whole(name)

    def text(self, name: str, default: str) -> str:
        """Return a string."""
        return cast(str, self._get(name, (str,), default))

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        return cast(bool, self._get(name, (bool,), default))

    def first(self, name: str, default: int) -> int:
        """Return an integer, or the first of a list of integers; `default` if there is none."""
        return next(iter(self.tokens(name)), default)

    def tokens(self, name: str) -> tuple[int, ...]:
        """Return a tuple of the integers in a list, or of a single one; empty if it is missing."""
        value = self.values.get(name)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if any(type(token) is not int for token in found):
            raise self.fault(f"{name} = {value!r}; expected int")
        return tuple(found)

    def label_tokenizer(self) -> Tokenizer:
        """Make the tokenizer of a classifier's labels, in the order of their ids.

        Without id2label they are LABEL_0 and LABEL_1. Raises `UserError` if id2label does not list
        at least two different labels, numbered from 0.
        """
        given = self.values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # the usual ones
        names = [given.get(str(i)) for i in range(len(given))] if isinstance(given, dict) else []
        ids: Any = {name: i for i, name in enumerate((*SPECIALS, *names))}
        if not 2 <= len(names) == len(ids) - len(SPECIALS) or not all(type(x) is str for x in ids):
            raise self.fault(f"id2label = {given!r}; expected 2 or more different texts, from 0 on")
        return Tokenizer(KINDS["label"].file(ids, ()), "label")

    def activation(self, name: str, default: str) -> Activation:
        """Return Pellucid's name of an activation. Raises `UserError` if there is none."""
        theirs = self.text(name, default)
        if theirs not in ACTIVATIONS:
            raise self.fault(f"{name} = {theirs!r}; expected one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[theirs]

    def gated(self, name: str, default: str) -> Activation:
        """Return Pellucid's name of the gated form of an activation.

        Raises `UserError` if there is none.
        """
        plain = self.activation(name, default)
        if plain not in GATED:
            raise self.fault(f"{name} = {plain!r} has no gated form here: {', '.join(GATED)} have")
        return GATED[plain]

    def only(self, name: str, allowed: Any) -> None:
        """Raise `UserError` if a setting is given with a value other than the supported one."""
        value = self.values.get(name)
        if value is not None and value != allowed:
            raise self.fault(f"{name} = {value!r} is not supported, only {allowed!r}")

    def fault(self, text: str) -> UserError:
        """Make an error whose message begins with the file's path."""
        return UserError(f"{self.path}: {text}")

    def _get(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        """Return a value after checking its type.

        Raises `UserError` if it is wrong or missing.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise self.fault(f"{name} is missing")
        if type(value) not in kinds:
            raise self.fault(f"{name} = {value!r}; expected {kinds[-1].__name__}")
        return value
