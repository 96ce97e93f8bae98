"""Check the shapes that signatures state: `x: Annotated[Array, "… E"]`, in the letters of torch.

`install` makes every function of `pellucid.ops` and method of `pellucid.nn` that states shapes
check them, after each call that returns: a letter is one size in all arguments and results.

N, L, …     a size; the same letter, the same size
2F, N+1     twice a size, a size and one
E|1         a size, or 1
…           any axes, the same for all arrays of a call that have it
*           any axes
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

PACKAGES = ("pellucid.ops", "pellucid.nn")
TOKEN = re.compile(r"(\d*)([A-Za-z]\w*)?(\+\d+)?")


class ShapeError(AssertionError):
    """An array has another shape than its signature states."""


def stated(hint: Any) -> str | None:
    """Return the shape that a type states, None for one that states none.

    >>> stated(Annotated[int, "N L"] | None)
    'N L'
    """
    if get_origin(hint) is Annotated:
        return next((each for each in hint.__metadata__ if isinstance(each, str)), None)
    if get_origin(hint) in (Union, types.UnionType):
        return next((found for each in get_args(hint) if (found := stated(each)) is not None), None)
    return None


def check(shape: Sequence[int], wanted: str, sizes: dict[str, Any]) -> bool:
    """Return whether a shape is as stated, given the sizes so far; add those that it shows.

    >>> sizes = {}
    >>> check((3, 5, 8), "… L 2F", sizes), sizes["F"], check((4,), "F", sizes)
    (True, 4, True)
    >>> check((3, 6), "… L", sizes)
    False
    """
    tokens, axes = wanted.split(), list(shape)
    for open_end in {"…", "*"} & set(tokens):
        at = tokens.index(open_end)
        free = axes[at : len(axes) - (len(tokens) - 1 - at)]
        if open_end == "…" and sizes.setdefault("…", free) != free:
            return False
        tokens[at : at + 1] = map(str, free)
    return len(tokens) == len(axes) and all(
        fits(size, token, sizes) for size, token in zip(axes, tokens, strict=True)
    )


def fits(size: int, token: str, sizes: dict[str, Any]) -> bool:
    """Return whether one size is as a token states."""
    if "|" in token:
        return any(fits(size, each, sizes) for each in token.split("|"))
    match = TOKEN.fullmatch(token)
    assert match is not None, f"{token!r} is no size"
    times, letter, plus = match.groups()
    if letter is None:
        return size == int(times)
    whole, rest = divmod(size - int(plus or 0), int(times or 1))
    return rest == 0 and sizes.setdefault(letter, whole) == whole


def checked(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f with its shapes checked; f itself where it states none."""
    if "Annotated" not in str(f.__annotations__):
        return f
    names = list(inspect.signature(f).parameters)
    right: set[tuple[Any, ...]] = set()
    """The shapes that were right: a call with the same is not looked at again."""

    @functools.cache
    def shapes() -> tuple[dict[str, str], list[str | None]]:
        hints = get_type_hints(f, include_extras=True)
        result = hints.pop("return", None)
        results = get_args(result) if get_origin(result) is tuple else (result,)
        arguments = {name: shape for name in names if (shape := stated(hints.get(name)))}
        return arguments, [stated(each) for each in results]

    def compare(result: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        arguments, results = shapes()
        given = dict(zip(names, args, strict=False)) | options
        several = result if isinstance(result, tuple) and len(results) > 1 else (result,)
        arrays = [(name, given.get(name), shape) for name, shape in arguments.items()]
        arrays += [
            ("the result", y, s) for y, s in zip(several, results, strict=False) if s is not None
        ]
        found = tuple(getattr(array, "shape", None) for _, array, _ in arrays)
        if found in right:
            return
        sizes: dict[str, Any] = {}
        for (name, _, shape), there in zip(arrays, found, strict=True):
            if there is not None and not check(there, shape, sizes):
                known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
                raise ShapeError(
                    f"{f.__qualname__}: {name} is ({shape}), got {tuple(there)} where {known}"
                )
        right.add(found)

    def wrapper(*args: Any, **options: Any) -> Any:
        result = f(*args, **options)
        compare(result, args, options)
        return result

    # with f's globals, by which doctest knows whose function it is
    made = types.FunctionType(
        wrapper.__code__, f.__globals__, f.__name__, None, wrapper.__closure__
    )
    return functools.update_wrapper(made, f)


def instrument(module: types.ModuleType) -> None:
    """Check the functions of a module, and the methods of its classes."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, types.FunctionType):
            setattr(module, name, checked(value))
        elif isinstance(value, type):
            for method, f in list(vars(value).items()):
                if isinstance(f, types.FunctionType):
                    setattr(value, method, checked(f))


class _Finder(importlib.abc.MetaPathFinder):
    """Instruments the modules of `PACKAGES` as they are imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith(PACKAGES):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                instrument(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Check shapes in all modules that are imported from now on."""
    early = [name for name in sys.modules if name.startswith(PACKAGES)]
    assert not early, f"imported before the checks of shapes: {', '.join(early)}"
    sys.meta_path.insert(0, _Finder())
