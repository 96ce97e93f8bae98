"""An op's derivative, compared exactly: over finite fields, where nothing is rounded.

The forward of the op runs on dual numbers of `field`, which gives ẏ, the derivative of y in the
direction ẋ of one input. The backward runs on plain numbers and gives the gradient g. With a
random projection r of the output both are numbers of the field of p0 = 2¹⁴¹ elements or more, and
are equal or not:

    Σ r ⊙ ẏ = Σ g ⊙ ẋ        for each input

**What a wrong term does.** The difference of the two sides is a quotient of polynomials in r, ẋ,
the inputs and their exps. A right backward makes it 0 as a polynomial, so that it is 0 for any
draw. Of a wrong one the numerator is another polynomial, of degree d, and by Schwartz and Zippel it
is 0 for at most a share d / s of the draws, where every variable is drawn from s values or more.
Inputs, r and ẋ are drawn from a whole field; an exp takes the p1 or p2 values of a subgroup, each
equally often, since its exponent is uniform in the next field and independent of the others: the
scores of attention are, while there are no more keys than a head is wide, and functions of one
element are, up to the degree of the exponent. So s ≥ 2¹²⁷ − 1. A root exists for half of the draws
of a row, which doubles d / s. The rows here have d far below 2⁴⁰: **a wrong term, of whatever
size, passes with a probability below 2⁻⁸⁰.**

**What it does not prove.** The shapes and options are those of the row, the branch that of its real
numbers (their maximum, their signs), and constants are what the code's decimals say: 0.7978… in
place of √(2/π), the same in forward and backward. Rounding, overflow and kernels are not looked at.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.check import field
from pellucid.check.cases import Case, OpCase
from pellucid.check.field import PRIMES, Exact, NoFormError, RedrawError
from pellucid.check.gradient import Forward, listed
from pellucid.check.result import Result

ON_THE_HOST = ("cu_q", "cu_k", "offset")
"""Arguments that stay NumPy arrays for any library."""
DRAWS = 400


def check_exact(case: Case) -> Result:
    """Compare every gradient of a row exactly; the error is how many of them are wrong."""
    name = f"{case.kind} {case.name}"
    if name.startswith("layer Transformer"):
        return Result("exact", name, 0, 0.0, 0.0, "a norm's root has no form as an exponent")
    kinds = "iuf" if isinstance(case, OpCase) else "iu"  # what a layer converts itself stays
    given = case.fixed.items()
    case = replace(case, fixed={name: _fixed(name, x, kinds) for name, x in given})
    forward, arrays = case.enrolled()
    inputs = [_drawn(x) for x in arrays.values()]
    for _ in range(DRAWS):
        try:
            wrong = _wrong(forward, inputs)
        except NoFormError as missing:
            return Result("exact", name, 0, 0.0, 0.0, str(missing))
        except RedrawError as nowhere:
            inputs = [_drawn_again(x, nowhere.places) for x in inputs]
        else:
            return Result("exact", name, len(inputs), float(wrong), 0.0)
    return Result("exact", name, 0, 0.0, 0.0, f"no root in {DRAWS} draws")


def _fixed(name: str, x: Any, kinds: str) -> Any:
    moves = isinstance(x, np.ndarray) and x.dtype.kind in kinds and name not in ON_THE_HOST
    return field.asarray(x) if moves else x


def _wrong(forward: Forward, inputs: Sequence[Exact]) -> int:
    """Count the gradients that differ from the exact derivative."""
    ys, backward = forward(*inputs)
    generator = np.random.default_rng(3)
    rs = [None if y is None else _drawn(generator.standard_normal(y.shape)) for y in listed(ys)]
    wrong = 0
    for i, (x, g) in enumerate(zip(inputs, backward(*rs), strict=True)):
        direction = _elements(x.shape, PRIMES[0])
        moved = Exact(x.real, x.fields, direction)
        there = listed(forward(*inputs[:i], moved, *inputs[i + 1 :])[0])
        pairs = [(r, y.tangent) for r, y in zip(rs, there, strict=True) if r is not None]
        expected = sum(int(np.sum(r.fields[0] * dy)) for r, dy in pairs if dy is not None)
        found = g.shape == x.shape and int(np.sum(g.fields[0] * direction))
        wrong += found is False or (found - expected) % PRIMES[0] != 0
    return wrong


_draw = random.Random()  # seeded anew by the system, so that no code can know the draws


def _elements(shape: tuple[int, ...], p: int) -> np.ndarray:
    drawn = np.empty(shape, object)
    drawn.ravel()[...] = [_draw.randrange(p) for _ in range(drawn.size)]
    return drawn


def _drawn(x: np.ndarray) -> Exact:
    """Return random exact numbers, whose `real` is x."""
    return Exact(x, [_elements(x.shape, p) for p in PRIMES])


def _drawn_again(x: Exact, places: np.ndarray) -> Exact:
    """Draw rows of an input again at these places, where they are places of its rows."""
    new = _drawn(x.real)
    if x.ndim != places.ndim:
        return new
    rows = np.argwhere(places)[:, :-1]
    again = np.zeros(x.shape, np.bool_)
    for row in rows:
        if all(i < size for i, size in zip(row, x.shape, strict=False)):
            again[tuple(row)] = True
    pairs: Any = zip(new.fields, x.fields, strict=True)
    return Exact(x.real, [np.where(again, a, b) for a, b in pairs])
