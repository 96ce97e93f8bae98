"""Compile a user's function of scores (`ops.rules.function`) into the fused attention kernels.

The function is compiled with other globals, in which exp, where and so on are functions of vectors.
Each function gets kernels of its own, cached by its code like any other kernel.
"""

import builtins
import dis
import hashlib
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from pellucid.core.array import own_number
from pellucid.core.vjp import Declined
from pellucid.kernels.backend import simd
from pellucid.kernels.backend.compile import EXACT, NoCompilerError, inner
from pellucid.kernels.backend.math import exp, log, tanh
from pellucid.ops.rules import function as page
from pellucid.ops.rules.function import At, Function, Table

_f = np.float32


class UnknownNameError(Exception):
    """A function cannot become part of a kernel.

    It uses a name that is not available there, or has a default that is no number or keyword-only,
    or is not written with def or lambda.
    """


@inner(EXACT)
def _exp(x):
    """Compute eˣ of any float; inf from about 88.4 on, a little before it overflows."""
    x = simd.floats_of(x)
    return simd.select(x > _f(88.7), _f(np.inf), exp(simd.select(x > _f(88.7), _f(0.0), x)))


def _of_floats(f: Any) -> Any:
    """Return a function that converts its argument to floats and applies f."""

    @inner(EXACT)
    def of_floats(x):
        return f(simd.floats_of(x))

    return of_floats


@inner(EXACT)
def _minimum(x, y):
    return simd.choose(x < y, x, y)


@inner(EXACT)
def _maximum(x, y):
    return simd.choose(x > y, x, y)


_VOCABULARY: dict[Any, Any] = {
    page.exp: _exp,
    page.log: _of_floats(log),
    page.tanh: _of_floats(tanh),
    page.sqrt: simd.sqrt,
    page.floor: simd.floor,
    page.where: simd.choose,
    page.minimum: _minimum,
    page.maximum: _maximum,
    abs: simd.absolute,
}
_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "xor": "^",
}  # fmt: skip


@inner()
def _at(j, rows):
    """Return the places (`At`) of scores j, j + 1, … as floats.

    `rows` is the result of `attention_rule.rows_of`.
    """
    query, key, head, example = rows[5:9]
    q = simd.floats_of(query)
    k = simd.floats_of(key + j) + simd.lane_numbers()
    return At(q, k, q - k, simd.floats_of(head), simd.floats_of(example))


@inner()
def _places(j, rows):
    """Return the places (`At`) of scores j, j + 1, … as integers, for the index of a table.

    `rows` as in `_at`.
    """
    query, key, head, example = rows[5:9]
    q, k = simd.ints_of(query), simd.lane_places() + (key + j)
    return At(q, k, q - k, simd.ints_of(head), simd.ints_of(example))


@inner(EXACT)
def _inside(index, size):
    """Convert an index to integers, clipped to 0 … size − 1; NaN becomes 0."""
    index = simd.ints_of(index)
    index = simd.choose(index > 0, index, 0)
    return simd.choose(index < size, index, size - 1)


@inner(EXACT)
def _unless_zero(da, d):
    """Return the derivative d, but 0 where da is 0, even if d is NaN."""
    return simd.select(da == _f(0.0), _f(0.0), simd.floats_of(d))


def step(function: Function, first: int) -> tuple[Any, Any]:
    """Return the functions forward(a, j, rows, cap) and backward(da, a, j, rows, cap) of a step.

    The step applies the user's function to scores. `first` is the column at which its parameters,
    and their gradients, begin among those of the head. Raises `UnknownNameError`.
    """
    scope: dict[str, Any] = {
        "forward": inner(EXACT)(_translated(function.forward)),
        "backward": inner(EXACT)(_translated(function.backward)),
        "_at": _at,
        "_places": _places,
        "_inside": _inside,
        "_unless_zero": _unless_zero,
        "floats_of": simd.floats_of,
        "number_at": simd.number_at,
        "gather": simd.gather,
        "scatter_add": simd.scatter_add,
        "reduce_add": simd.reduce_add,
        "add_double": simd.add_double,
        "__name__": __name__,
    }
    values, sums, names, column = "", "", "", first
    for i, each in enumerate(function.learnt.values()):
        names += f", v{i}"
        numbers, gradient = f"rows[9] + {4 * column}", f"rows[10] + {8 * column}"
        if isinstance(each, Table):
            scope[f"index{i}"] = inner(EXACT)(_translated(each.index))
            index = f"_inside(index{i}(_places(j, rows)), {each.size})"
            values += f"    i{i} = {index}\n    v{i} = gather({numbers}, i{i})\n"
            sums += f"    scatter_add({gradient}, i{i}, _unless_zero(da, d{i}))\n"
            column += each.size
        else:
            values += f"    v{i} = floats_of(number_at({numbers}))\n"
            sums += f"    add_double({gradient}, reduce_add(_unless_zero(da, d{i})))\n"
            column += 1
    gradients = names.replace("v", "d")
    exec(
        f"def step(a, j, rows, cap):\n"
        f"    at = _at(j, rows)\n{values}"
        f"    return floats_of(forward(a, at{names}))\n"
        f"def step_backward(da, a, j, rows, cap):\n"
        f"    at = _at(j, rows)\n{values}"
        f"    d{gradients} = backward(da, a, at{names})\n{sums}"
        f"    return _unless_zero(da, d)\n",
        scope,
    )
    return inner(EXACT)(scope["step"]), inner(EXACT)(scope["step_backward"])


def refused(error: Exception) -> Declined:
    """Return `Declined` with a readable reason, from an error in compiling a user's function."""
    if isinstance(error, NoCompilerError):
        return Declined(str(error))
    text = re.sub(r"\x1b\[\d*m", "", str(error))  # colours
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = next((line for line in lines if "nopython" not in line), type(error).__name__)
    used = re.search(r"<built-in function \w+>.*\n\s*>>> (\w+)\((.*)\)$", text, re.MULTILINE)
    if used is not None:
        name, of = used[1], re.sub(r"Literal\[\w+\]\((.*?)\)", r"\1", used[2])
        of = of.replace(str(simd.floats), "numbers").replace(str(simd.truths), "conditions")
        why = f"no {_SYMBOLS.get(name, name)} of {of.replace(', ', ' and ')}"
    return Declined(
        "a function of scores may use + - * / and comparisons of numbers, & | ~ of conditions, "
        f"what `pellucid.ops.rules.function` has and functions of these, and no branches: {why}"
    )


def digest(function: Function) -> str:
    """Return a digest of everything that a function's result depends on at this moment.

    That includes numbers from outside: if one of them changes, the function needs another kernel.
    The digest is the same in every process with this version of Python, so that kernels can be
    cached on disk. Raises `UnknownNameError`.
    """
    tables = [(x.size, *_text(x.index)) for x in function.learnt.values() if isinstance(x, Table)]
    kinds = [type(x).__name__ for x in function.learnt.values()]
    text = repr((*_text(function.forward), *_text(function.backward), tables, kinds))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _text(f: Callable[..., Any]) -> Iterator[Any]:
    """Yield a function's code, defaults and outside names, with the functions that it calls."""
    meanings = list(_meanings(f))
    yield _code(f.__code__)
    yield f.__defaults__
    for name, value in meanings:
        if isinstance(value, FunctionType):
            yield name, list(_text(value))
        else:
            number = isinstance(value, int | float)
            yield name, value if number else getattr(value, "py_func", value).__name__


@cache
def _code(code: CodeType) -> str:
    """Return the instructions and constants of a code object as text."""
    consts = [_code(x) if isinstance(x, CodeType) else x for x in code.co_consts]
    return repr((code.co_code, consts, code.co_names, code.co_varnames))


@cache
def _outside(code: CodeType) -> list[str]:
    """Return the global names that a function's code uses."""
    return sorted({x.argval for x in dis.get_instructions(code) if x.opname == "LOAD_GLOBAL"})


def _meanings(f: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the global and closure names that a function uses, with their values in a kernel."""
    if not isinstance(f, FunctionType):
        raise UnknownNameError(f"{f!r} is not written with def or lambda")
    code = f.__code__
    if f.__kwdefaults__ or not all(isinstance(x, int | float) for x in f.__defaults__ or ()):
        raise UnknownNameError(f"a default of {f.__name__} is no number, or named only")
    found = {n: f.__globals__.get(n, getattr(builtins, n, None)) for n in _outside(code)}
    cells = zip(code.co_freevars, f.__closure__ or (), strict=True)
    for name, value in (*found.items(), *((n, c.cell_contents) for n, c in cells)):
        value = own_number(value)
        try:
            known = _VOCABULARY.get(value)
        except TypeError:  # no hash
            known = None
        if known is not None:
            yield name, known
        elif isinstance(value, FunctionType | int | float) or value is np or value is math:
            yield name, value
        else:
            raise UnknownNameError(f"{name} in {f.__name__} is a {type(value).__name__}")


def _translated(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function whose outside names have their values in a kernel."""
    names = {
        name: inner(EXACT)(_translated(value)) if isinstance(value, FunctionType) else value
        for name, value in _meanings(f)
    }
    cells = tuple(CellType(names[name]) for name in f.__code__.co_freevars)
    scope = {**names, "__name__": __name__, "__builtins__": builtins}
    return FunctionType(f.__code__, scope, f.__name__, f.__defaults__, cells)
