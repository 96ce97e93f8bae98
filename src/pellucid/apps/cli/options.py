"""Options: read by tyro from a command's function, its help made to fit the terminal."""

from __future__ import annotations

import codecs
import contextlib
import inspect
import io
import re
import shlex
import shutil
import sys
import types
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass, replace
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
    UnsupportedTypeAnnotationError,
)

from pellucid.apps.cli.language import narrowed, tr, widened, wrapped
from pellucid.core.errors import UsageError
from pellucid.generation import SampleConfig, SearchConfig

RULES = ConstructorRegistry()
"""What tyro makes options of, where it differs from its own rules."""

TITLES = ("positional arguments", "options")
WORDS = ("usage:", "show this help message and exit", "(required)")
"""What tyro writes of its own accord, in the titles of its boxes and elsewhere."""

_helping: ContextVar[bool] = ContextVar("helping", default=False)
"""Whether tyro writes help, which is in the user's language. Its errors are in English."""


def parse(
    function: Callable[..., int],
    command: str,
    arguments: Sequence[str],
    *,
    lists: Sequence[str] = (),
) -> int:
    """Call a command's function with the arguments as typed; return its exit code.

    Positional-only parameters are positional, the others options; the docstring is the help.

    Args:
        function: What the command does.
        command: How its help names it, after `pellucid`.
        arguments: What follows the command's name.
        lists: Options that take several values, which would drop all but the last if repeated.
    """
    refuse_repeated(arguments, *lists)
    if not asks_help(arguments):
        return _call(function, command, arguments)
    width = shutil.get_terminal_size().columns
    encoding = codecs.lookup(sys.stdout.encoding or "utf-8").name  # as tyro spells it
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    helping = _helping.set(True)
    try:
        with contextlib.redirect_stdout(shown):
            return _call(function, command, arguments)
    finally:
        _helping.reset(helping)
        shown.seek(0)
        for line in shown.read().splitlines():  # tyro wraps its boxes, but not the text above them
            if line and not line.strip(" │"):
                continue  # in a box, where a default that is not shown had no room
            indent = " " * 7 if line.startswith("usage:") else ""
            line = _own_words(line)
            print(wrapped(line, width, later=indent) if line[width:] else narrowed(line))


def _call(function: Callable[..., int], command: str, arguments: Sequence[str]) -> int:
    return int(
        tyro.cli(
            _documented(function),
            prog=f"pellucid {command}",
            args=arguments,
            config=(
                tyro.conf.AvoidSubcommands,
                tyro.conf.PositionalMetavarFromFieldName,
                tyro.conf.SuppressFixed,
            ),
            registry=RULES,
        )
    )


def _shown(english: str) -> str:
    """Return a text of the help in the user's language, as long as the columns it takes."""
    return widened(tr(english)) if _helping.get() else english


def _own_words(line: str) -> str:
    """Return a line of the help with what tyro writes itself in the user's language, as wide."""
    for title in TITLES:
        word = f"{widened(tr(title))} ".ljust(len(title) + 1, "─")
        line = line.replace(f"{title} ─", f"{word}─")
    for words in WORDS:
        line = line.replace(words, widened(tr(words)).ljust(len(words)))
    return line


def before_text(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments before a bare --, after which everything is text."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def asks_help(arguments: Sequence[str]) -> bool:
    """Return whether help is an option among the arguments."""
    return bool({"-h", "--help"} & set(before_text(arguments)))


def split_name(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the first argument, unless it is an option, and the rest.

    >>> split_name(["runs/g2p", "--json"]), split_name(["--help"])
    (('runs/g2p', ['--json']), (None, ['--help']))
    """
    named = bool(arguments) and not arguments[0].startswith("-")
    return (arguments[0], list(arguments[1:])) if named else (None, list(arguments))


def refuse_repeated(arguments: Sequence[str], *options: str) -> None:
    """Raise `UsageError` if an option that takes several values is given more than once.

    The argument parser would keep the last and silently drop the others.

    >>> refuse_repeated(["--output", "a.html", "b.txt", "--", "--output"], "--output")
    """
    names = [word.partition("=")[0] for word in before_text(arguments)]
    for option in options:
        if (times := names.count(option)) > 1:
            raise UsageError(
                f"{option} is given {times} times, and only the last would count; give all its "
                "values after one"
            )


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option that must be known before the others can be read.

    >>> value_of(["--run=a", "--seed", "5"], "--seed")
    '5'
    """
    found, typed = None, before_text(arguments)
    for i, word in enumerate(typed):
        name, joined, value = word.partition("=")
        if name == option and (joined or typed[i + 1 :]):
            found = value if joined else typed[i + 1]
    return found


def accepts_changes(arguments: Sequence[str]) -> bool:
    """Return whether --accept-changes is among the options, before the others can be read.

    >>> accepts_changes(["--accept-changes"]), accepts_changes(["--", "--accept-changes"])
    (True, False)
    """
    typed = [word.replace("_", "-") for word in before_text(arguments)]
    either = [word for word in typed if word in ("--accept-changes", "--no-accept-changes")]
    return either[-1:] == ["--accept-changes"]


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling instead of search; any of these turns it on."""

    temperature: float | None = None
    """Divide the log-probabilities by this: below 1 less random, above 1 more random."""
    top_k: int | None = None
    """Sample from this many of the likeliest tokens; 0: from all."""
    top_p: float | None = None
    """Sample from the fewest likeliest tokens whose probabilities sum to this."""
    min_p: float | None = None
    """Leave out tokens less likely than this fraction of the likeliest token's probability."""
    seed: int | None = None
    """Random seed of the samples."""

    def config(self, search: SearchConfig) -> SampleConfig | None:
        """Return how to sample, or None to search; `search` gives length and constraints."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            return None
        if search.best > 1:
            raise UsageError(
                f"sampling gives one answer, but --best {search.best} asks for more: leave out one"
            )
        plain = SampleConfig(max_length=search.max_length, constraints=search.constraints)
        return replace(plain, **given)


def _documented(function: Callable[..., int]) -> Callable[..., int]:
    """Return the function with its help's lines joined: tyro would break where they break."""

    def call(*args: Any, **options: Any) -> int:
        return function(*args, **options)

    # Not functools.wraps: tyro would look through it.
    text, args, entries = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    paragraphs = [_shown(" ".join(paragraph.split())) for paragraph in text.split("\n\n")]
    options = [
        f"    {name}: {_shown(what)}"
        for entry in re.sub(r"\n {8,}", " ", entries).splitlines()
        for name, _, what in [entry.strip().partition(": ")]
    ]
    call.__doc__ = "\n\n".join(paragraphs) + args + "\n".join(options)
    hints = get_type_hints(function, include_extras=True)
    call.__annotations__ = {name: Annotated[hint, DEFAULT] for name, hint in hints.items()}
    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def _default(value: str) -> str:
    """Say what an option is by default, unless that is nothing.

    >>> _default("None"), _default("''"), _default("'a b' 3")
    ('', '', '(default: a b 3)')
    """
    shown = {"None": "", "False": "", "True": _shown("on")}.get(value, " ".join(shlex.split(value)))
    return _shown("(default: {})").format(shown) if shown else ""


DEFAULT = tyro.conf.arg(help_behavior_hint=_default)
_expanding: set[Any] = set()


@RULES.struct_rule
def _settings(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Make options of a dataclass as tyro does, their help's lines joined."""
    if not is_dataclass(info.type) or info.type in _expanding:
        return None
    _expanding.add(info.type)
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _expanding.remove(info.type)
    assert isinstance(spec, StructConstructorSpec)
    return replace(spec, fields=tuple(map(_joined, spec.fields)))


def _joined(field: StructFieldSpec) -> StructFieldSpec:
    def helptext() -> str | None:
        text = field.helptext() if callable(field.helptext) else field.helptext
        if not text and is_dataclass(field.type):
            text = field.type.__doc__  # what tyro would write above its options
        return _shown(" ".join(text.split())) if text else None

    kind: Any = Annotated[field.type, DEFAULT]
    return replace(field, type=kind, helptext=helptext)


@RULES.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read T | None as T, or as None where that is typed; its help shows T."""
    kinds = [kind for kind in get_args(info.type) if kind is not types.NoneType]
    if info.type_origin not in (Union, types.UnionType) or len(kinds) == len(get_args(info.type)):
        return None
    spec = ConstructorRegistry.get_primitive_spec(
        PrimitiveTypeInfo.make(reduce(or_, kinds), info.markers)
    )
    if isinstance(spec, UnsupportedTypeAnnotationError):
        return None
    read, write, is_one = spec.instance_from_str, spec.str_from_instance, spec.is_instance
    return replace(
        spec,
        nargs=(1, spec.nargs) if isinstance(spec.nargs, int) and spec.nargs > 1 else spec.nargs,
        choices=None if spec.choices is None else (*spec.choices, "None"),
        instance_from_str=lambda words: None if words == ["None"] else read(words),
        str_from_instance=lambda value: ["None"] if value is None else write(value),
        is_instance=lambda value: value is None or is_one(value),
    )


@RULES.primitive_rule
def _model_type(info: PrimitiveTypeInfo) -> UnsupportedTypeAnnotationError | None:
    """Make no option of a model's family: the recipe decides it."""
    values = get_args(info.type)
    one = get_origin(info.type) is Literal and str(values[0]).startswith("pellucid-")
    return UnsupportedTypeAnnotationError(()) if one else None
