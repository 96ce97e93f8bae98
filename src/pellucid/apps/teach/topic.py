"""A topic as data: equation, steps in two languages, the code of each step, checks that run."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pellucid import Rng, nn, ops
from pellucid.apps.view.backward import CodeLine, statements
from pellucid.check import TOLERANCE, gradient_check
from pellucid.core.language import Text


class Code:
    """The statements of a function that assign certain names; "return" names its returns."""

    def __init__(self, function: Callable[..., Any], *names: str) -> None:
        self.function, self.names = function, names

    def lines(self) -> list[CodeLine]:
        """Return the statements in the order of the file; `LookupError` where one is missing.

        >>> [line.text for line in Code(ops.linear_backward, "dweight").lines()]
        ['dweight = dy_rows.T @ x_rows']
        """
        lines = [line for each in statements(self.function, *self.names) for line in each]
        texts = textwrap.dedent("\n".join(line.text for line in lines)).split("\n")
        return [line._replace(text=text) for line, text in zip(lines, texts, strict=True)]


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
