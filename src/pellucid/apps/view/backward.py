"""The backward pass of attention as the page shows it: source lines, and a check.

The lines are those of `ops`; the check compares a gradient with a finite difference.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pellucid
from pellucid import nn, ops
from pellucid.apps.view.capture import Captured, frozen
from pellucid.apps.view.record import Cell, Check
from pellucid.ops.activations import ACTIVATIONS

PACKAGE = Path(pellucid.__file__).parent
LARGEST = 20_000_000
"""The most parameters of a model that is checked; its float64 copy takes 160 MB."""
STEP = 1e-4


class CodeLine(NamedTuple):
    """One line of Pellucid's source code."""

    file: str
    """Path relative to the package, such as `ops/attention.py`."""
    function: str
    number: int
    """Line number, from 1."""
    text: str


STEPS: dict[str, str] = {
    "dZ": "linear: dx",
    "dV": "attention: dv",
    "dW": "attention: dw",
    "dA": "attention: da; softmax: return",
    "dQ": "attention: dq",
    "dK": "attention: dk",
    "dx": "linear: dx",
    "dlogits": "cross_entropy: return; log_softmax: return",
    "layer_norm.g": "layer_norm: g 2",
    "layer_norm.dx": "layer_norm: mean_g; layer_norm: mean_gx; layer_norm: dx",
    "layer_norm.dweight": "layer_norm: dweight 2",
    "layer_norm.dbias": "layer_norm: dbias",
    "rms_norm.g": "rms_norm: g 2",
    "rms_norm.dx": "rms_norm: mean_gx; rms_norm: dx",
    "rms_norm.dweight": "rms_norm: dweight 2",
    "feed_forward.da": "linear: dx",
    "feed_forward.dh": "bias_act_dropout: dx",
    "feed_forward.dx": "linear: dx",
    "feed_forward.dW1": "linear: dweight",
    "output.dlog_p": "cross_entropy: dlog_p",
    "output.dlogits": "log_softmax: return",
    "output.dx": "linear: dx",
    "activation.gelu_tanh": "gelu: t; gelu: slope; gelu: return 2",
    "activation.swiglu": "swiglu: da; swiglu: return",
}
"""The code of each step that the page shows: an op, and the variable that a statement of its
backward assigns, or "return"; a 2 means the second such statement. Steps of a norm begin with its
name. An activation that is not listed is computed where its backward returns."""


def _functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield (step, function, statement) for all code that computes a step."""
    for step, places in STEPS.items():
        for op, _, statement in (place.partition(": ") for place in places.split("; ")):
            yield step, getattr(ops, f"{op}_backward"), statement
    for name, activation in ACTIVATIONS.items():
        if f"activation.{name}" not in STEPS:
            yield f"activation.{name}", activation.op.backward, "return"


@cache
def code() -> dict[str, list[CodeLine]]:
    """Return the source lines of every step in `STEPS` and of every activation, by its name.

    Raises `LookupError` if a function no longer has the variable that `STEPS` names.
    """
    found: dict[str, list[CodeLine]] = {}
    for step, function, statement in _functions():
        name, _, second = statement.partition(" ")
        found.setdefault(step, []).extend(statements(function, name)[1 if second else 0])
    return found


def statements(function: Callable[..., Any], *names: str) -> list[list[CodeLine]]:
    """Return the source lines of each statement that assigns one of these names.

    The statements are in the order of the file; "return" names return statements. The first one in
    the body of an `if` includes the line of the condition. The lines are read from the source file,
    so that they are always those that run. Raises `LookupError` if the function has no statement
    for a name.
    """
    source, first = inspect.getsourcelines(function)
    path = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    file = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
    found: list[list[CodeLine]] = []
    missing = set(names)
    tree = ast.parse(textwrap.dedent("".join(source)))
    under = {id(s): node for node in ast.walk(tree) if isinstance(node, ast.If) for s in node.body}
    shown: set[int] = set()
    for node in ast.walk(tree):
        assigned = _assigned(node) & set(names)
        if isinstance(node, ast.stmt) and assigned:
            missing -= assigned
            span = range(node.lineno - 1, node.end_lineno or node.lineno)
            condition = under.get(id(node))
            before = range(condition.lineno - 1, condition.body[0].lineno - 1) if condition else ()
            kept = [i for i in (*before, *span) if i not in shown]
            shown.update(kept)
            texts = {first + i: source[i].removeprefix("    ").rstrip() for i in kept}
            found.append([CodeLine(file, function.__name__, n, t) for n, t in texts.items()])
    if missing:
        raise LookupError(
            f"{function.__qualname__} in {file} assigns no {', '.join(sorted(missing))}; name a "
            "variable that it does assign"
        )
    return sorted(found, key=lambda lines: lines[0].number)


def _assigned(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns; "return" for a return statement."""
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


def check_loss(model: nn.Module, run: Callable[..., Captured], cell: Cell) -> Check | None:
    """Compare Σ_i dz_i of one head with a finite difference of the whole model's loss.

    Each row of the attention weights adds up to 1, so adding b to all values of a head adds b to
    each of its outputs z. So the sum of their gradients is the gradient of the value bias. run:
    does `capture` of the sentence with a model. Computed in float64, with a copy of the model.
    Returns None for a model without that bias, with one for several heads, or with more than
    `LARGEST` parameters.
    """
    if sum(p.data.size for p in model.parameters()) > LARGEST:
        return None
    wide = frozen(model)
    for parameter in wide.parameters():
        parameter.data = parameter.data.astype(np.float64)
    m = next(m for m in run(wide).maps if (m.kind, m.layer) == (cell.kind, cell.layer + 1))
    bias = dict(wide.named_parameters()).get(f"{m.name}.in_proj_bias")
    if bias is None or len(bias.data) < 3 * m.q[:, 0].size:
        return None
    by_hand = m.doutputs[cell.head].sum(axis=0)
    entry = int(np.abs(by_hand).argmax())
    place = len(bias.data) - (len(m.q) - cell.head) * len(by_hand) + entry
    values, losses = bias.data, []
    for step in (STEP, -STEP):
        bias.data = values.copy()
        bias.data[place] += step
        losses.append(run(wide, maps=False).loss)
    difference = (losses[0] - losses[1]) / (2 * STEP)
    return Check(cell, entry, float(by_hand[entry]), difference, STEP)
