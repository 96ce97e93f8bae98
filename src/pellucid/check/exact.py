"""Check an op's derivative exactly, in finite fields, where nothing is rounded.

The forward of the op runs on dual numbers of `field`, which gives ẏ, the derivative of y in the
direction ẋ of one input. The backward runs on ordinary numbers and gives the gradient g. With a
random projection r of the output, both sides are elements of a field with p0 > 2¹⁴¹ elements, and
either equal or not:

    Σ r ⊙ ẏ = Σ g ⊙ ẋ        for each input

**Why a wrong term is found.** The difference of the two sides is a quotient of polynomials in r, ẋ,
the inputs and their exps. For a correct backward it is the polynomial 0, hence 0 for every draw.
For a wrong one the numerator is another polynomial, of degree d. By the lemma of Schwartz and
Zippel it is 0 for at most a share d / s of the draws, if every variable is drawn uniformly from at
least s values. Inputs, r and ẋ are drawn from a whole field. An exp takes the p1 or p2 values of a
subgroup equally often, since its exponent is uniform in the next field and independent of the
others. (Scores of attention are independent if there are no more keys than a head is wide;
functions of one element are, up to the degree of the exponent.) So s ≥ 2¹²⁷ − 1. A root exists for
half of the draws of a row, which doubles d / s. The rows here have d far below 2⁴⁰: **a wrong term
of any size passes with a probability below 2⁻⁸⁰.**

**What is not proved.** Only the shapes and options of the row are tested, and only the branch that
its real numbers take (their maximum, their signs). Constants are the decimals in the code: 0.7978…
instead of √(2/π), in forward and backward. Rounding, overflow and kernels are not tested.
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
"""The arguments of ops that are NumPy arrays for every library."""
DRAWS = 400
"""How often to draw inputs for which all roots exist."""


def check_exact(case: Case) -> Result:
    """Compare every gradient of a row exactly.

    The result's error is the number of wrong ones. A row that cannot be computed in finite fields,
    or whose roots do not exist in `DRAWS` draws, is not compared: its result has no arrays, passes
    and states the reason.
    """
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
    """Convert an array argument without a gradient to exact numbers, unless it stays NumPy's."""
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
    """Draw elements of the field of p elements."""
    drawn = np.empty(shape, object)
    drawn.ravel()[...] = [_draw.randrange(p) for _ in range(drawn.size)]
    return drawn


def _drawn(x: np.ndarray) -> Exact:
    """Draw random exact numbers whose `real` values are x."""
    return Exact(x, [_elements(x.shape, p) for p in PRIMES])


def _drawn_again(x: Exact, places: np.ndarray) -> Exact:
    """Draw an input again: the rows in which a place is True, or all if it has other axes.

    places: bool, where a root did not exist in the array of which the root was taken.
    """
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
