"""A family of checkpoints: its page, and what reads its config.json.

A page, NAME.toml, has what of a family is a table:

    like       another family: its page counts where this one says nothing
    model      our class; prefix: how names begin in files of a model with a head, and apart: the
               arrays whose names do not
    unused     parts of names of arrays that are no parameters, or that are not read
    specials   the texts of the begin, end and mask tokens, where config.json does not give them;
               the first that a tokenizer has
    only       settings of theirs, with the one value that a model here has
    settings   ours, with their name and what it is where it is not given
    fixed      settings of ours that all models of the family have
    names      our tensors' names, and theirs: # is a layer's number, * at the end weight or bias,
               {q,k,v} several arrays, stacked; or a table of the fields of `Theirs`, the name `of`
    tied       their name of the output layer's weight where it is the table of the tokens
    labels     the layer of labels of a page of classifiers, which is named NAME-labels.toml
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from pellucid import models
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import KINDS, SPECIALS, Tokenizer
from pellucid.models.config import Activation, Seq2SeqConfig, StackConfig
from pellucid.models.sizes import array_names
from pellucid.models.walk import UnsupportedError
from pellucid.ops.activations import ACTIVATIONS as OURS

ACTIVATIONS: dict[str, str] = {
    theirs: row.name for row in OURS.values() for theirs in row.huggingface
}
"""Our names of Hugging Face's activations."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
"""The gated forms of activations."""
Settings = dict[str, Any]


class Theirs(NamedTuple):
    """Their arrays that make one of our tensors, stacked."""

    names: tuple[str, ...]
    transposed: bool = False
    """GPT-2 keeps its matrices as (in, out), torch's Linear as (out, in). A bias stays as it is."""
    skip: int = 0
    """Rows left out at the start."""
    more: int = 0
    """Rows of zeros put in front: of our special tokens, among the labels."""
    first: bool = False
    """Only the first row, of a bias kept as (1, V)."""
    times: float = 1.0
    """Every number is multiplied by it."""
    plus: float = 0.0
    """Added to every number: Gemma keeps a norm's weight less one."""


Row = str | Mapping[str, Any]
Table = Mapping[str, Row]
"""The names of tensors in Pellucid and in Hugging Face's files, as a page lists them."""


def page_of(name: str) -> dict[str, Any]:
    """Return a family's page, with what it has of the one that it is like."""
    text = (files("pellucid.interop.families") / f"{name}.toml").read_text(encoding="utf-8")
    own = tomllib.loads(text)
    page = page_of(own.pop("like")) if "like" in own else {}
    for key, value in own.items():
        page[key] = page.get(key, {}) | value if isinstance(value, dict) else value
    return page


class Family:
    """How to read one kind of checkpoint.

    A family overrides methods for what its page cannot express.
    """

    def __init__(self, name: str) -> None:
        self.page = page = page_of(name)
        self.model: Any = getattr(models, page["model"])
        self.config_class: type[StackConfig] = getattr(models, f"{page['model']}Config")
        self.prefix, self.unused = page["prefix"], page["unused"]
        self.apart, self.specials = page.get("apart", ()), page.get("specials", ())

    def given(self, theirs: Foreign) -> Settings:
        """Return Hugging Face settings that replace those of the file."""
        return {}

    def read(self, theirs: Foreign) -> Settings:
        """Return Pellucid settings that are computed from Hugging Face's."""
        return {}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the rows of the table of names that depend on the settings."""
        return {}

    def config(self, theirs: Foreign) -> StackConfig:
        """Return our settings, from config.json."""
        theirs = Foreign({**theirs.values, **self.given(theirs)}, theirs.path, theirs.arrays)
        for name, value in self.page.get("only", {}).items():
            theirs.only(name, value)
        kinds, asked = get_type_hints(self.config_class), self.page["settings"]
        found = {ours: theirs.setting(kinds[ours], *names) for ours, names in asked.items()}
        return self.config_class(**found | self.page.get("fixed", {}) | self.read(theirs))

    def names(self, config: Any, theirs: Foreign) -> Table:
        """Return the Hugging Face arrays of every Pellucid tensor, and of tensors that only
        other models of the family have."""
        table: dict[str, Row] = dict(self.page["names"])
        if config.ties_output if isinstance(config, Seq2SeqConfig) else config.tie_word_embeddings:
            table["output.weight"] = self.page["tied"]
        return {**table, **self.renamed(config, theirs)}

    def sources(self, config: Any, theirs: Foreign) -> dict[str, Theirs]:
        """Return their arrays of every tensor of the model that a config makes.

        Raises `UnsupportedError` for a tensor that the family has no name for.
        """
        table = self.names(config, theirs)
        found = {name: _row(table, name) for name in array_names(self.model, config)}
        if missing := [name for name, source in found.items() if source is None]:
            raise UnsupportedError(f"{theirs.path}: this family has no {', '.join(missing)}")
        return {name: source for name, source in found.items() if source is not None}


def _row(table: Table, name: str) -> Theirs | None:
    """Return the row of a Pellucid tensor, with the layer's number and kind filled in."""
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
    """A config.json whose values are checked as they are read, and the names of the `arrays`."""

    def __init__(self, values: Mapping[str, Any], path: Path, arrays: Collection[str] = ()) -> None:
        self.values, self.path, self.arrays = values, path, arrays

    def setting(self, kind: Any, name: str, default: Any = None) -> Any:
        """Return a value converted to the type of a Pellucid setting."""
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

    def label_tokenizer(self) -> Tokenizer:
        """Return the tokenizer of a classifier's labels, in the order of their ids."""
        given = self.values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # the usual ones
        names = [given.get(str(i)) for i in range(len(given))] if isinstance(given, dict) else []
        ids: Any = {name: i for i, name in enumerate((*SPECIALS, *names))}
        if not 2 <= len(names) == len(ids) - len(SPECIALS) or not all(type(x) is str for x in ids):
            raise self.fault(
                f"id2label = {given!r}; expected two labels or more, numbered from 0, all different"
            )
        return Tokenizer(KINDS["label"].file(ids, ()), "label")

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
