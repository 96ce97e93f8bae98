"""A topic as data: equation, steps in two languages, the code of each step, checks that run."""

from __future__ import annotations

import ast
import inspect
import math
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import pellucid
from pellucid import Rng, nn, ops
from pellucid.check import gradient_check

Language = Literal["en", "ko"]
PACKAGE = Path(pellucid.__file__).parent


class Text(NamedTuple):
    """The same text in both languages."""

    en: str
    ko: str

    def to(self, language: Language) -> str:
        """Return the text in one language."""
        return self.ko if language == "ko" else self.en


class Line(NamedTuple):
    """One line of our source."""

    file: str
    """Relative to the package, as in `ops/attention.py`."""
    number: int
    code: str


class Code:
    """The statements of a function that assign certain names; "return" names its returns.

    Nothing is copied: `lines` reads the source when it is called.
    """

    def __init__(self, function: Callable[..., Any], *names: str) -> None:
        self.function, self.names = function, names

    def lines(self) -> list[Line]:
        """Return the statements in the order of the file.

        Raises `LookupError` when the function has no statement for one of the names.

        >>> [line.code for line in Code(ops.linear_backward, "dweight").lines()]
        ['dweight = dy_rows.T @ x_rows']
        """
        source, first = inspect.getsourcelines(self.function)
        path = Path(inspect.getsourcefile(self.function) or "").relative_to(PACKAGE)
        found: dict[int, Line] = {}
        missing = set(self.names)
        for node in ast.walk(ast.parse(textwrap.dedent("".join(source)))):
            assigned = _assigned(node) & set(self.names)
            if isinstance(node, ast.stmt) and assigned:
                missing -= assigned
                for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                    found[i] = Line(path.as_posix(), first + i, source[i].rstrip())
        if missing:
            raise LookupError(
                f"{self.function.__qualname__} in {path} assigns no {', '.join(sorted(missing))}; "
                "name a variable that it does assign"
            )
        block = textwrap.dedent("\n".join(found[i].code for i in sorted(found))).split("\n")
        return [found[i]._replace(code=code) for i, code in zip(sorted(found), block, strict=True)]


def _assigned(node: ast.AST) -> set[str]:
    """Return the names that one statement assigns."""
    if isinstance(node, ast.Return):
        return {"return"}
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    return {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


class Step(NamedTuple):
    """One line of the derivation: a formula, what it says, and the code that computes it."""

    formula: str
    text: Text
    code: Code | None = None


class Edge(NamedTuple):
    """A case at the edge: what happens there, and an expression that shows it."""

    text: Text
    expression: str
    names: Mapping[str, Any] = {}
    """What the expression needs besides `np`, `inf`, `ops`, `nn` and `Rng`."""

    def value(self) -> Any:
        """Evaluate the expression."""
        names = {"np": np, "inf": math.inf, "ops": ops, "nn": nn, "Rng": Rng, **self.names}
        with np.errstate(all="ignore"):
            return eval(self.expression, names)


class Check(NamedTuple):
    """A number computed on this machine that must not exceed a limit."""

    text: Text
    error: Callable[[], float]
    limit: float


@dataclass(frozen=True)
class Topic:
    """Everything `pellucid explain` prints of one topic."""

    title: Text
    summary: Text
    equations: tuple[str, ...]
    source: str
    articles: tuple[str, ...]
    """Numbers of the articles that treat it."""
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    edges: tuple[Edge, ...]
    checks: tuple[Check, ...]
    related: tuple[str, ...] = ()


DIFFERENCES = Text(
    "gradients against finite differences in float64, largest relative error",
    "float64 유한 차분과 비교한 기울기의 최대 상대 오차",
)
TOLERANCE = 1e-7


def gradients_of(
    f: Callable[..., tuple[Any, Any]],
    f_backward: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    **options: Any,
) -> Check:
    """Return the check of an op's backward against central differences."""

    def forward(*inputs: np.ndarray) -> tuple[Any, Callable[..., Any]]:
        y, saved = f(*inputs, **options)
        return y, lambda dy: f_backward(dy, saved)

    return Check(DIFFERENCES, lambda: max(gradient_check(forward, arrays)), TOLERANCE)


def normal(*shape: int) -> np.ndarray:
    """Return standard normal numbers in float64; equal shapes give equal numbers."""
    return np.random.default_rng(shape).standard_normal(shape)


def language_of(environment: Mapping[str, str] = os.environ) -> Language:
    """Return the language that the locale asks for: Korean, or else English.

    >>> language_of({"LANG": "ko_KR.UTF-8"}), language_of({"LC_ALL": "C", "LANG": "ko_KR.UTF-8"})
    ('ko', 'en')
    """
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(name):
            return "ko" if environment[name].lower().startswith("ko") else "en"
    return "en"
