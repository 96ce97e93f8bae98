"""Convert settings between TOML tables and frozen dataclasses.

A dataclass is a table, a field is a key, and the field's type says which values are allowed.
Reading is strict: an unknown key, a value of another type or a value out of range is an error that
names the file, the key and, for an unknown key, one that is spelled alike. TOML has no null: a
field whose type allows None has None as its default, and None is left out when writing. If a field
may hold one of several dataclasses, its type is their base class, and each has a tag: a field with
`init=False` and a fixed value. A table selects the class by the tag's value.
"""

import difflib
import math
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pellucid.core.errors import UsageError
from pellucid.core.parts import GIVE, Registry

T = TypeVar("T")

_hints = cache(get_type_hints)  # it takes longer than making a dataclass


class _Text(type):
    """Metaclass of types whose instances are plain `str` values."""

    def __instancecheck__(cls, value: object) -> bool:
        return type(value) is str


class Name(str, metaclass=_Text):
    """The type of a setting that names a part of a registry; values are plain `str`.

    A subclass sets `registry`; the names allowed are those that it has when the setting is read.

    >>> class Fruit(Name):
    ...     registry = Registry(apple=1)
    >>> Fruit.words()
    ('apple',)
    """

    registry: ClassVar[Registry[Any]] = Registry()
    others: ClassVar[tuple[str, ...]] = ()
    """Texts that are allowed in addition to the names of the registry."""

    @classmethod
    def words(cls, wanted: object = None) -> tuple[str, ...]:
        """Return all allowed names; imports the user's parts first if `wanted` is not known yet."""
        if wanted not in cls.others:
            cls.registry.get(wanted)
        return (*cls.others, *cls.registry)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean …?)" with the closest of `names`, or "" when none is close.

    >>> nearest("widht", ["width", "depth"])
    ' (did you mean width?)'
    """
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def path_of(value: Any, what: str) -> Path:
    """Return the path that a user gave, with the home folder for a ~ at its beginning.

    what: where it was given. Raises `UsageError` for an empty text, and for what is no path.

    >>> path_of("", "load")
    Traceback (most recent call last):
    pellucid.core.errors.UsageError: load: expected the name or path of a file or folder, got ''
    """
    if isinstance(value, str | os.PathLike) and str(value):
        return Path(os.path.expanduser(value))  # noqa: PTH111 - the other raises for "~nobody"
    raise UsageError(f"{what}: expected the name or path of a file or folder, got {value!r}")


def check_known(what: str, name: object, names: Iterable[object]) -> None:
    """Raise `UsageError` if a name is not one of `names`; it suggests the closest and lists all.

    what: a word for such a name. An empty name counts as not given.

    >>> check_known("fruit", "aple", ["apple", "pear"])
    Traceback (most recent call last):
    pellucid.core.errors.UsageError: no fruit 'aple' (did you mean apple?); there are: apple, pear
    """
    if str(name) not in (known := [str(each) for each in names]):
        wrong = "given" if name == "" else f"{name!r}{nearest(str(name), known)}"
        raise UsageError(f"no {what} {wrong}; there are: {', '.join(known)}")


def from_mapping(
    kind: type[T],
    values: Mapping[str, Any],
    source: str,
    base: T | None = None,
    key: str = "",
    beside: Sequence[str] = (),
) -> T:
    """Build the dataclass `kind` from a mapping.

    Keys that are absent are taken from `base`, or without it from the defaults of the fields.

    `source` names the file in errors, `key` the table within it. `beside` lists keys that are not
    fields, to be named among the known ones in an error.

    Raises `UsageError` for an unknown key, one that is missing and has no default, a wrong type, or
    a value that the dataclass refuses with a `ValueError` or `UsageError`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Model:
    ...     width: int = 128
    >>> from_mapping(Model, {"width": 64}, "my.toml")
    Model(width=64)
    """
    hints = _hints(cast(Any, kind))
    known = [field for field in fields(cast(Any, kind)) if field.init]
    names = [field.name for field in known]
    tags = _tags(kind)
    for name in values:
        if name in tags and values[name] != tags[name]:
            expected = f"expected {tags[name]}, got {values[name]!r}"
            raise UsageError(f"{source}: {_join(key, name)}: {expected}")
        if name not in tags and name not in names:
            there = [*names, *beside]
            raise UsageError(
                f"{source}: unknown setting {_join(key, name)}{nearest(name, there)}; "
                f"{f'[{key}]' if key else 'the file'} has: {', '.join(there)}"
            )
    arguments: dict[str, Any] = {}
    for field in known:
        name, where, hint = field.name, _join(key, field.name), hints[field.name]
        if name in values:
            arguments[name] = _read(hint, values[name], source, where, getattr(base, name, None))
        elif base is not None:
            arguments[name] = getattr(base, name)
        elif field.default is field.default_factory is MISSING:
            raise UsageError(f"{source}: {where} is missing; expected {_describe(hint)}")
    try:
        return kind(**arguments)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{source}: {f'[{key}] ' if key else ''}{error}") from None


def check_ranges(settings: Any, **ranges: str) -> None:
    """Raise `UsageError` for a field out of range, of another type, or not of its allowed words.

    ranges: an interval for each field, such as "[0, 1)": at least 0 and below 1. None
    is in every range. Words are checked for fields whose type is a `Literal` or `Name`, and texts
    for fields that may also hold another type, such as `Literal["none"] | float`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Model:
    ...     width: int | None = None
    ...     def __post_init__(self) -> None:
    ...         check_ranges(self, width="[1, inf]")
    >>> Model(0)
    Traceback (most recent call last):
    pellucid.core.errors.UsageError: width must be at least 1, got 0
    """
    for name, hint, alone in _worded(cast(Any, type(settings))):
        value = getattr(settings, name)
        checked = alone or isinstance(value, str)
        if checked and value not in (words := words_of(hint, value) or ()):
            raise UsageError(f"{name} must be one of {', '.join(words)}; got {value!r}")
    hints = _hints(cast(Any, type(settings)))
    for name, interval in ranges.items():
        value = getattr(settings, name)
        kind: Any = Integral if int in (hints[name], *get_args(hints[name])) else Real
        low, high = map(float, interval[1:-1].split(","))
        if value is None:
            continue
        if not isinstance(value, kind):
            raise UsageError(f"{name} must be {_describe(hints[name])}, got {value!r}")
        inside = low < value < high or (value == low and interval[0] == "[")
        if inside or (value == high and interval[-1] == "]"):
            continue
        allowed = f"at least {low:g}" if interval[0] == "[" else f"above {low:g}"
        if high < math.inf:
            most = f"{allowed} and at most {high:g}"
            allowed = most if interval[-1] == "]" else f"{allowed} and below {high:g}"
        elif interval[-1] == ")":
            allowed = f"{allowed} and finite"
        raise UsageError(f"{name} must be {allowed}, got {value}")


@cache
def _worded(kind: type) -> list[tuple[str, Any, bool]]:
    """Return the fields that allow only certain words: name, type, and whether it has no other."""
    hints = _hints(kind).items()
    each = ((name, part, part is hint) for name, hint in hints for part in (hint, *get_args(hint)))
    return [(name, part, alone) for name, part, alone in each if words_of(part) is not None]


def words_of(kind: Any, wanted: object = None) -> tuple[Any, ...] | None:
    """Return the words that a `Literal` or `Name` type allows, or None for any other type.

    For a `Name`, the user's parts are imported first if `wanted` is not among its words.

    >>> words_of(Literal["pre", "post"]), words_of(str)
    (('pre', 'post'), None)
    """
    if get_origin(kind) is Literal:
        return get_args(kind)
    return kind.words(wanted) if isinstance(kind, type) and issubclass(kind, Name) else None


def to_mapping(settings: Any) -> dict[str, Any]:
    """Convert a dataclass to nested mappings that TOML can hold; fields that are None are left out.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Model:
    ...     width: int = 128
    ...     depth: int | None = None
    >>> to_mapping(Model())
    {'width': 128}
    """
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: plain(value) for name, value in values.items() if value is not None}


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings to one with dotted names.

    >>> flat({"seed": 3, "model": {"width": 64}})
    {'seed': 3, 'model.width': 64}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": inner for name, inner in flat(value).items()}
        else:
            found[key] = value
    return found


def changes(
    before: Mapping[str, Any], now: Mapping[str, Any], absent: str = "unknown"
) -> list[str]:
    """List the values that differ, as `name: before -> now`.

    A missing value is `absent`.

    >>> changes({"blas threads": "2"}, {"blas threads": "4", "numba": "0.61"})
    ['blas threads: 2 -> 4', 'numba: unknown -> 0.61']
    """
    names = dict.fromkeys([*before, *now])
    return [
        f"{name}: {before.get(name, absent)} -> {now.get(name, absent)}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def plain(value: Any) -> Any:
    """Convert a value to what TOML can hold: dataclass to mapping, tuple to list, path to text."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read(kind: Any, value: Any, source: str, key: str, base: Any) -> Any:
    """Check a value against the type `kind`.

    Converts it to a dataclass, tuple, path or (an int) float.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(value, Mapping):
        kind = _table(kind, value, source, key, base)
        same = base if type(base) is kind else None
        return from_mapping(cast(Any, kind), value, source, same, key)
    kinds = arguments if origin in (Union, types.UnionType) else ()
    if value is None and type(None) in kinds:  # null, which JSON has
        return None
    for each in kinds:
        with suppress(UsageError):
            return _read(each, value, source, key, base)
    words = [word for each in kinds or (kind,) for word in words_of(each, value) or ()]
    if value in words:
        return value
    if origin is tuple and isinstance(value, list):
        items = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        if len(items) == len(value):
            return tuple(
                _read(each, item, source, f"{key}[{i}]", None)
                for i, (each, item) in enumerate(zip(items, value, strict=True))
            )
    if origin is dict and isinstance(value, Mapping):
        return {k: _read(arguments[1], v, source, _join(key, k), None) for k, v in value.items()}
    if kind is Path and isinstance(value, str):
        return path_of(value, f"{source}: {key}")
    if kind is float and type(value) is int:
        return float(value)
    if kind in (bool, int, float, str) and type(value) is kind:
        return value
    hint = nearest(value, map(str, words)) if isinstance(value, str) else ""
    if any(isinstance(each, type) and issubclass(each, Name) for each in kinds or (kind,)):
        hint += f"; {GIVE}"
    raise UsageError(f"{source}: {key}: expected {_describe(kind)}, got {value!r}{hint}")


def _table(kind: Any, value: Mapping[str, Any], source: str, key: str, base: Any) -> Any:
    """Return the dataclass that a table describes: a tagged subclass of `kind`, or `kind` itself.

    A table without a tag is of the class of `base`, or else of the first subclass.
    """
    if not (kinds := _tagged(kind)):
        return kind
    usual = type(base) if type(base) in kinds else kinds[0]
    name = next((name for name in _tags(usual) if name in value), None)
    if name is None:
        return usual
    tag, by_tag = value[name], Registry({_tags(each)[name]: each for each in kinds})
    if tag not in by_tag:  # the failed look-up has imported the user's parts
        by_tag |= {_tags(each)[name]: each for each in _tagged(kind)}
    if tag not in by_tag:
        raise UsageError(
            f"{source}: {_join(key, name)}: no {tag!r}{nearest(str(tag), by_tag)}; expected one of "
            f"{', '.join(by_tag)}"
        )
    return by_tag[tag]


def _tagged(kind: Any) -> list[Any]:
    """Return all dataclasses with a tag below `kind`; none if `kind` itself has a tag."""

    def derived(kind: Any) -> list[Any]:
        found = [each for each in kind.__subclasses__() if is_dataclass(each)]
        return [each for sub in found for each in (sub, *derived(sub))]

    return [] if _tags(kind) else [each for each in derived(kind) if _tags(each)]


def _tags(kind: Any) -> dict[str, str]:
    """Return the tag fields (`init=False`) of a dataclass, with their values."""
    return {field.name: str(field.default) for field in fields(kind) if not field.init}


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}


def _describe(kind: Any) -> str:
    """Describe a type for an error message."""
    origin, arguments = get_origin(kind), get_args(kind)
    if (words := words_of(kind)) is not None:
        return "one of " + ", ".join(str(word) or '""' for word in words)
    if origin is tuple:
        count = "" if arguments[-1:] == (...,) else f"{len(arguments)} of "
        return f"a list ({count}{_describe(arguments[0])})"
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(k) for k in arguments if k is not type(None))
    return _WORDS.get(kind, f"a table ({getattr(kind, '__name__', kind)})")
