"""The exercises of `pellucid exercise`, and the diagnosis of wrong answers.

An exercise is a file exercises/NAME.toml and its name in `EXERCISES`. Texts are pairs: English,
Korean.

    title, equation, about, hints  texts for the learner; `about` describes the arguments
    topic      the topic of `pellucid explain` that explains it
    arguments  of the function that the learner writes; `returns` names its results
    given      arrays, as expressions; `draw(shape)` draws standard normal numbers
    again      some of the arrays in other shapes: a right answer is tested a second time, so that
               one with hard-coded sizes or values is noticed
    forward    statements that compute the other arguments from the given arrays
    output     an expression; its gradients at the given arrays that `gradients` names are the
               expected results, or, without `gradients`, its value
    upstream   the given array that is the gradient of the loss at the output; unset: 1
    solution   a right body of the function
    mistakes   by name, `change`: what to replace in the solution; `says`: a sentence about it
    invariants by result, `zero`: an expression that is 0 for the right one; `says`: why, with {}
               for the largest value of a wrong one

The expected gradients are central differences of `output`; the backward functions of `ops` are not
used. The arguments are read-only, so that a function that overwrites them is noticed.

exercises/common.toml has mistakes that are possible in every exercise, and advice on common errors
of Python and NumPy; exercises/learnt.toml has what models with a mistake still learn.
"""

import re
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.apps.teach.mutants import mutants, terms
from pellucid.system.language import Language, Text

EXERCISES = (
    "softmax_backward", "cross_entropy_backward", "linear_backward", "relu_backward",
    "gelu_backward", "layer_norm", "layer_norm_backward", "scaled_scores", "causal_weights",
    "attention_dv", "attention_dq_dk", "split_join", "residual_backward", "feed_forward_backward",
    "encoder_layer_backward",
)  # fmt: skip
"""In learning order: each uses the ones before it."""

STEP = 1e-5
"""Step of the central differences; their error is then below 1e-9."""

TOLERANCE = 1e-6
"""Largest relative error of a right answer; every known mistake is off by far more."""

Array = np.ndarray


class Result(NamedTuple):
    """One array that the learner's function returned, and the expected array."""

    name: str
    yours: Array
    right: Array
    mistake: Text | None = None
    """The mistake in words, if it is a known one."""

    @property
    def off(self) -> float:
        """Relative error, ‖yours − right‖ / ‖right‖.

        Infinite for a wrong shape, NaN or infinity.
        """
        if self.yours.shape != self.right.shape or not np.isfinite(self.yours).all():
            return float("inf")
        return float(np.linalg.norm(self.yours - self.right) / np.linalg.norm(self.right))

    @property
    def passed(self) -> bool:
        """Whether the relative error is within `TOLERANCE`."""
        return self.off <= TOLERANCE


@cache
def read(name: str) -> Mapping[str, Any]:
    """Read exercises/NAME.toml: an exercise, `common` or `learnt`."""
    path = files("pellucid.apps.teach") / "exercises" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def text(pair: list[str], language: Language) -> str:
    """Return a (English, Korean) pair of an exercise in one language."""
    return Text(*pair).to(language)


def page(name: str, language: Language) -> str:
    """Return the file to fill in: the equation, the arguments, an empty function."""
    exercise = read(name)
    about = [text(pair, language) for pair in exercise["about"]]
    rest = Text("Write it here", "여기에 쓰세요").to(language)
    arguments, returns = ", ".join(exercise["arguments"]), ", ".join(exercise["returns"])
    head = f"{EXERCISES.index(name) + 1}/{len(EXERCISES)}  {text(exercise['title'], language)}"
    lines = [
        f'"""{head}',
        "",
        textwrap.indent(exercise["equation"].strip(), "    "),
        '"""',
        "",
        "import numpy as np",
        "",
        "",
        f"def {name}({arguments}):",
        *(f"    # {line}" for pair in about for line in textwrap.wrap(pair, 90)),
        f"    # return {returns}",
        f'    raise NotImplementedError("{rest}")',
    ]
    return "\n".join(lines) + "\n"


def solution(name: str, change: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Compile the right solution of an exercise, with a mistake put into it if given.

    change: the mistake, as old text -> new text. Raises `LookupError` if an old text is not found.
    """
    exercise = read(name)
    body = exercise["solution"].strip()
    for old, new in (change or {}).items():
        if old not in body:
            raise LookupError(f"{name}.toml: {old!r} is not in the solution, or replaced before")
        body = body.replace(old, new)
    scope: dict[str, Any] = {"np": np}
    exec(f"def f({', '.join(exercise['arguments'])}):\n{textwrap.indent(body, '    ')}", scope)
    written: Callable[..., Any] = scope["f"]
    return written


def scope_of(
    name: str, moved: Mapping[str, Array] | None = None, again: bool = False
) -> dict[str, Any]:
    """Evaluate the arrays of an exercise; return all its variables by name.

    moved: arrays that replace given ones, for finite differences. again: use the other shapes, with
    another random seed.
    """
    exercise = read(name)
    draw = np.random.default_rng(int(again)).standard_normal
    scope: dict[str, Any] = {"np": np, "ops": ops, "draw": draw}
    for each, expression in {**exercise["given"], **(exercise["again"] if again else {})}.items():
        scope[each] = eval(expression, scope)
    scope.update(moved or {})
    exec(exercise.get("forward", ""), scope)
    scope["output"] = eval(exercise["output"], scope)
    return scope


@cache
def right_results(name: str, again: bool = False) -> tuple[Array, ...]:
    """Compute the expected results of an exercise; gradients by central differences."""
    exercise, scope = read(name), scope_of(name, again=again)
    if "gradients" not in exercise:
        return tuple(scope["output"]) if len(exercise["returns"]) > 1 else (scope["output"],)
    upstream = scope[exercise["upstream"]] if "upstream" in exercise else 1.0

    def loss(each: str, x: Array, index: tuple[int, ...], step: float) -> float:
        x = x.copy()
        x[index] += step
        return float(np.sum(upstream * scope_of(name, {each: x}, again)["output"]))

    def gradient(each: str) -> Array:
        x = scope[each]
        slopes = [
            (loss(each, x, index, STEP) - loss(each, x, index, -STEP)) / (2 * STEP)
            for index in np.ndindex(x.shape)
        ]
        return np.reshape(slopes, x.shape)

    return tuple(map(gradient, exercise["gradients"]))


def called(name: str, function: Callable[..., Any], again: bool = False) -> list[Array]:
    """Call the learner's function with the arguments of an exercise.

    Return its results as arrays. The arguments are read-only. Raises `ValueError` for a wrong
    number of results, and for results that are not arrays of real numbers.
    """
    exercise, scope = read(name), scope_of(name, again=again)
    arguments = [scope[each] for each in exercise["arguments"]]
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            argument.setflags(write=False)
    with np.errstate(all="ignore"):
        returned = function(*arguments)
    names = exercise["returns"]
    several = tuple if len(names) == 1 else (tuple, list)
    values = returned if isinstance(returned, several) else (returned,)
    if returned is None:
        raise ValueError(f"it returned nothing; expected {', '.join(names)}")
    if len(values) != len(names):
        raise ValueError(f"expected {', '.join(names)}; it returned {len(values)} results")
    for each, value in zip(names, values, strict=True):
        if np.ma.isMaskedArray(value) or np.iscomplexobj(value):
            raise ValueError(f"{each} is masked or complex; expected an array of real numbers")
    return [np.asarray(value, dtype=np.float64) for value in values]


def diagnose(name: str, function: Callable[..., Any]) -> Iterator[Result]:
    """Check each result of a learner's function, and name the mistake in a wrong one.

    A mistake is recognised by its numbers: the solution with that mistake returns the same. Pairs
    of mistakes and small changes of the solution are recognised in the same way. Right results are
    tested again with arrays of other shapes.
    """
    returned, right = called(name, function), right_results(name)
    results = list(map(Result, read(name)["returns"], returned, right))
    wrong = [result for result in results if not result.passed]
    if not wrong:
        yield from _asked_again(name, function, results)
        return
    for i, result in enumerate(results):
        if not result.passed:
            result = result._replace(mistake=_mistake(name, i, result, wrong))
        yield result


def _mistake(name: str, i: int, result: Result, wrong: list[Result]) -> Text | None:
    """Describe the mistake in result i; None if no known mistake gives its numbers."""
    _, yours, right, _ = result
    for other in wrong:
        if other is not result and _same(yours, other.right):
            return _says("another", other=other.name, order=", ".join(read(name)["returns"]))
    for key, mistake in read(name)["mistakes"].items():
        if _same(yours, called(name, solution(name, mistake["change"]))[i]):
            (en, ko), also = mistake["says"], learnt(name, key)
            return Text(en + also.en, ko + also.ko)
    for says in read("common")["mistakes"]:
        if _same(yours, getattr(np, says["makes"])(right)):
            return Text(*says["says"])
    if yours.shape == right.shape and np.isfinite(yours).all():
        factor = float(np.sum(yours * right) / np.sum(right * right))
        if _same(yours, factor * right):
            return _says("factor", factor=factor)
    paired = (says for says, results in _pairs(name) if _same(yours, results[i]))
    return next(paired, None) or _counted(name, i, result) or _changed(name, i, result)


def learnt(name: str, mistake: str) -> Text:
    """Return a sentence on what Transformers trained with a mistake still get right.

    It begins with a space, to follow another sentence, and is empty if none was trained with this
    mistake. The numbers come from scripts/silent_bugs.py.
    """
    right = read("learnt").get(name, {}).get(mistake)
    if right is None:
        return Text("", "")
    return _says("learnt", right=", ".join(right), none=read("learnt")["none"][0])


def _says(name: str, **values: Any) -> Text:
    """Return a sentence of common.toml with values filled in."""
    return Text(*(each.format(**values) for each in read("common")["says"][name]))


def _asked_again(
    name: str, function: Callable[..., Any], results: list[Result]
) -> Iterator[Result]:
    """Test right results with arrays of other shapes.

    Yield those that are wrong, else the originals.
    """
    right = right_results(name, again=True)
    try:
        other = called(name, function, again=True)
    except (ValueError, IndexError):
        other = [np.full_like(each, np.nan) for each in right]
    for result, theirs, wanted in zip(results, other, right, strict=True):
        second = result._replace(yours=theirs, right=wanted, mistake=_says("size"))
        yield result if second.passed else second


def advice(about: str) -> Text | None:
    """Return advice on a common error message of Python or NumPy, else None."""
    errors = read("common")["errors"]
    return next((Text(*one["says"]) for one in errors if re.search(one["pattern"], about)), None)


def _counted(name: str, i: int, result: Result) -> Text | None:
    """Find a term that a result has with a wrong factor.

    Return a sentence about it, or None. The solution is a sum of terms; least squares finds the
    factor of each term in the wrong result. A second attempt adds one of the arguments as a further
    term.
    """
    exercise, scope, (_, yours, right, _) = read(name), scope_of(name), result
    body = exercise["solution"].strip()
    exec(body.rpartition("return")[0], scope)
    if yours.shape != right.shape or not np.isfinite(yours).all():
        return None
    sums = terms(body)[i]
    more = [each for each in exercise["arguments"] if np.shape(scope[each]) == right.shape]
    for tried in (sums, *([*sums, each] for each in more)):
        flat = [np.broadcast_to(eval(each, scope), right.shape).ravel() for each in tried]
        matrix = np.stack(flat, axis=1)
        if np.linalg.matrix_rank(matrix) < len(tried):
            continue
        counts, once = (np.linalg.lstsq(matrix, x.ravel())[0] for x in (yours, right))
        if not _same((matrix @ counts).reshape(right.shape), yours):
            continue
        found = zip(sums, counts / once, strict=False)
        off = [(each, n) for each, n in found if abs(n - 1) > TOLERANCE]
        if tried is sums:
            return _says("counted", terms="; ".join(f"{n:.4g} × `{each}`" for each, n in off))
        if not off:
            return _says("more", n=counts[-1], term=tried[-1])
    return None


def _changed(name: str, i: int, result: Result) -> Text | None:
    """Find the smallest change of the solution that gives a wrong result.

    Return a sentence, or None. Without such a change, return a sentence on the shape, or on an
    invariant that the result violates.
    """
    same = [
        (len(old) + len(new), old, new)
        for old, new, results in _mutants(name)
        if _same(result.yours, results[i])
    ]
    if not np.isfinite(result.yours).all():
        return None
    if same:
        _, old, new = min(same)
        return _says("changed", old=old, new=new)
    if result.yours.shape != result.right.shape:
        shapes = {"yours": result.yours.shape, "right": result.right.shape}
        kinds = read("common")["shapes"]
        return next((Text(*one["says"]) for one in kinds if eval(one["when"], shapes)), None)
    for rule in read(name).get("invariants", {}).get(result.name, ()):
        zero = eval(rule["zero"], {**scope_of(name), result.name: result.yours})
        if not np.max(np.abs(zero)) <= TOLERANCE:
            return Text(*(says.format(f"{np.max(np.abs(zero)):.2g}") for says in rule["says"]))
    return None


@cache
def _mutants(name: str) -> list[tuple[str, str, list[Array]]]:
    """Return (old code, new code, results) for each single change of the solution.

    Changes that raise an error are left out.
    """
    found = []
    head = f"def f({', '.join(read(name)['arguments'])}):\n"
    for old, new, body in mutants(read(name)["solution"].strip()):
        scope: dict[str, Any] = {"np": np}
        with suppress(Exception), warnings.catch_warnings():  # many changes make no sense
            warnings.simplefilter("ignore")
            exec(head + textwrap.indent(body, "    "), scope)
            found.append((old, new, called(name, scope["f"])))
    return found


@cache
def _pairs(name: str) -> list[tuple[Text, list[Array]]]:
    """Return (sentence, results) for the solution with every two mistakes at once.

    Pairs that cannot both be put into the solution are left out.
    """
    found = []
    for first, second in permutations(read(name)["mistakes"].values(), 2):
        with suppress(LookupError, SyntaxError, TypeError, ValueError):
            results = called(name, solution(name, {**first["change"], **second["change"]}))
            (en, ko), (en_too, ko_too) = first["says"], second["says"]
            says = Text(f"Two mistakes. {en} {en_too}", f"두 가지를 틀렸습니다. {ko} {ko_too}")
            found.append((says, results))
    return found


def _same(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same shape and, up to rounding, values.

    NaN equals NaN.
    """
    close = TOLERANCE * max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
    return a.shape == b.shape and np.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
