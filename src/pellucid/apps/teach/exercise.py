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
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.apps.teach.mutants import mutants, plain, terms
from pellucid.system.files import read_toml
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

RARELY = 1e-3
"""Smallest factor of a term too many; with a smaller one it is rounding."""

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
    return read_toml(Path(__file__).with_name("exercises") / f"{name}.toml")


def text(pair: list[str], language: Language) -> str:
    """Return the English or the Korean text of a pair in an exercise."""
    return Text(*pair).to(language)


def page(name: str, language: Language) -> str:
    """Return the text of the file to fill in: the equation, and a function to write."""
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
    return _function(name, _replaced(name, read(name)["solution"], change or {}))


def _replaced(name: str, body: str, change: Mapping[str, str]) -> str:
    for old, new in change.items():
        if old not in body:
            raise LookupError(f"{name}.toml: {old!r} is not in the solution, or replaced before")
        body = body.replace(old, new)
    return body.strip()


def _function(name: str, body: str) -> Callable[..., Any]:
    """Compile the body of an exercise's function."""
    scope: dict[str, Any] = {"np": np}
    exec(f"def f({', '.join(read(name)['arguments'])}):\n{textwrap.indent(body, '    ')}", scope)
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
    """Compute the expected results of an exercise; gradients by central differences.

    again: for the arrays of other shapes.
    """
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
    """Call a learner's function with the arguments of an exercise; return its results.

    function: the learner's function, or a solution. again: use arrays of other shapes.

    Returns one float64 array for each name in the exercise's `returns`. The arguments are
    read-only. Raises `ValueError` for a wrong number of results, `ValueError` or `TypeError` for
    results that are not arrays of real numbers, and every error of the function itself.
    """
    with np.errstate(all="ignore"):
        returned = function(*_arguments(name, again))
    names = read(name)["returns"]
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


@cache
def _arguments(name: str, again: bool) -> list[Any]:
    """Return the arguments of an exercise; arrays are read-only."""
    scope = scope_of(name, again=again)
    arguments = [scope[each] for each in read(name)["arguments"]]
    for argument in arguments:
        if isinstance(argument, Array):
            argument.setflags(write=False)
    return arguments


def diagnose(name: str, function: Callable[..., Any]) -> Iterator[Result]:
    """Check each result of a learner's function, and name the mistake in a wrong one.

    Yields one `Result` for each name in the exercise's `returns`.

    A mistake is recognised by its numbers: the solution with that mistake returns the same numbers.
    Pairs of mistakes and small changes of the solution are recognised in the same way. If all
    results are right, they are tested again with arrays of other shapes; those that are wrong there
    are yielded with those arrays. If it raises `ValueError` or `IndexError` for them, all results
    are yielded as wrong, with NaN for its numbers. Raises as `called` for the first arrays.
    """
    returned, right = called(name, function), right_results(name)
    results = list(map(Result, read(name)["returns"], returned, right))
    wrong = [result for result in results if not result.passed]
    if not wrong:
        yield from _asked_again(name, function, results)
        return
    for i, result in enumerate(results):
        if not result.passed:
            result = result._replace(mistake=next(_mistakes(name, i, result, wrong), None))
        yield result


def _mistakes(name: str, i: int, result: Result, wrong: list[Result]) -> Iterator[Text]:
    """Describe the mistakes that can explain result i, the likeliest first.

    wrong: all wrong results of the function; result i is one of them.

    Listed mistakes come first, then two of them at once, then unlisted changes of the solution,
    alone or together with a listed mistake. If none of these explains the result, the text is about
    a wrong shape, or an equation that the result violates.
    """
    fits, body = partial(_same, result.yours), read(name)["solution"].strip()
    for other in wrong:
        if other is not result and fits(other.right):
            yield _says("another", other=other.name, order=", ".join(read(name)["returns"]))
    known = _known(name, body)
    for key, (says, _, results) in known.items():
        if fits(results[i]):
            also = learnt(name, key)
            yield Text(says.en + also.en, says.ko + also.ko)
    yield from _common("mistakes", result)
    for says, changed, _ in known.values():
        for too, _, results in _known(name, changed).values():
            if fits(results[i]):
                yield _says("two", first=says, second=too)
    alone = [(differs, differs) for differs in _differs(name, body, i, result.yours)]
    found = alone or [
        (too, _says("two", first=says, second=too))
        for says, changed, _ in known.values()
        for too in _differs(name, changed, i, result.yours)
    ]
    yield from (says for _, says in sorted(found, key=lambda pair: len(pair[0].en)))
    yield from _common("last", result)
    if result.yours.shape == result.right.shape:
        for rule in read(name).get("invariants", {}).get(result.name, ()):
            zero = eval(rule["zero"], {**scope_of(name), result.name: result.yours})
            if not np.max(np.abs(zero)) <= TOLERANCE:
                yield Text(*(says.format(f"{np.max(np.abs(zero)):.2g}") for says in rule["says"]))


def _common(of: str, result: Result) -> Iterator[Text]:
    """Yield the sentences of a table of common.toml that are true of a result.

    of: the table; `when` of each of its entries is the condition, in Python.
    """
    scope = {**result._asdict(), "np": np, "same": partial(_same, result.yours)}
    for kind in read("common")[of]:
        if eval(kind["when"], scope):
            yield Text(*(says.format(n=eval(kind.get("n", "0"), scope)) for says in kind["says"]))


def learnt(name: str, mistake: str) -> Text:
    """Return a sentence on what Transformers trained with a mistake still get right.

    It begins with a space, to follow another sentence, and is empty if none was trained with this
    mistake. The numbers come from scripts/silent_bugs.py.
    """
    right, none = read("learnt").get(name, {}).get(mistake), read("learnt")["none"]
    if right is None:
        return Text("", "")
    return _says("learnt", right=", ".join(right), none=", ".join(none[: len(right)]))


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
    """Return advice on an error message of Python or NumPy; None if it is not a common one."""
    errors = read("common")["errors"]
    return next((Text(*one["says"]) for one in errors if re.search(one["pattern"], about)), None)


@cache
def _known(name: str, body: str) -> dict[str, tuple[Text, str, list[Array]]]:
    """Put each listed mistake into a body; return (sentence, changed body, its results) by name.

    A mistake is left out if the body does not contain the code that it replaces, or if the changed
    body raises a LookupError, SyntaxError, TypeError or ValueError.
    """
    found = {}
    for key, mistake in read(name)["mistakes"].items():
        with suppress(LookupError, SyntaxError, TypeError, ValueError):
            changed = _replaced(name, body, mistake["change"])
            results = called(name, _function(name, changed))
            found[key] = Text(*mistake["says"]), changed, results
    return found


@cache
def _mutants(name: str, body: str) -> list[tuple[str, str, list[Array]]]:
    """Return (old code, new code, results) for each single change of a body.

    Changes that raise an error are left out.
    """
    found = []
    for old, new, changed in mutants(body):
        with suppress(Exception), warnings.catch_warnings():  # many changes make no sense
            warnings.simplefilter("ignore")
            found.append((old, new, called(name, _function(name, changed))))
    return found


def _differs(name: str, body: str, i: int, yours: Array) -> list[Text]:
    """Find single changes of a body that give the learner's result i; describe each.

    body: the solution, or the solution with a listed mistake. yours: the learner's result i.

    The result is a sum of terms. Least squares finds a wrong factor of a term, or one additional
    term (an array, or a term of the sum times an array). Then `_mutants` are compared with the
    result; the code that they change must also be in the solution.
    """
    found, base = [], called(name, _function(name, body))[i]
    scope, made = scope_of(name), dict[str, Any]()
    with np.errstate(all="ignore"):
        exec(body.rpartition("return")[0], scope, made)
    sums, names = terms(body)[i], [*read(name)["arguments"], *made]
    arrays = [each for each in names if isinstance(eval(each, scope, made), Array)]
    more = [*arrays, *(f"{term} * {each}" for term in sums for each in arrays)]
    for extra in ([], *([each] for each in more)):
        with suppress(ValueError), np.errstate(all="ignore"):  # another shape, or NaN
            values = [eval(each, scope, made) for each in (*sums, *extra)]
            columns = [np.broadcast_to(x, yours.shape).ravel() for x in values]
            matrix = np.asarray_chkfinite(np.stack([*columns, yours.ravel(), base.ravel()], axis=1))
            counts, _, rank, _ = np.linalg.lstsq(matrix[:, :-2], matrix[:, -2:])
            fits = _same(yours, (matrix[:, :-2] @ counts[:, 0]).reshape(base.shape))
            n = counts[-1, 0]
            if not fits or rank < len(values) or (extra and abs(n) < RARELY):
                continue
            counted = [(each / once, x) for (each, once), x in zip(counts, sums, strict=False)]
            off = [f"{n.round(6) + 0:.4g} × `{x}`" for n, x in counted if abs(n - 1) > TOLERANCE]
            kind = "counted" if not extra else "counted_and_more" if off else "more"
            found.append(_says(kind, terms="; ".join(off), n=n, term=[*sums, *extra][-1]))
            if kind == "counted" and len(off) == 1:
                return found
    right = plain(read(name)["solution"])
    for old, new, results in _mutants(name, body):
        if old in right and np.isfinite(yours).all() and _same(yours, results[i]):
            found.append(_says("changed", old=old, new=new))
    return found


def _same(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same shape and, up to rounding, values.

    NaN equals NaN.
    """
    close = TOLERANCE * max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
    return a.shape == b.shape and np.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
