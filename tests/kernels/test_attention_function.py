"""A user's function of scores, compiled into the kernels of attention."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, planned
from tests.kernels.test_attention import H, L, N, S, draw, named, padding

from pellucid import ops
from pellucid.kernels import dispatch
from pellucid.kernels.attention_function import digest
from pellucid.kernels.choices import Choices
from pellucid.kernels.flash import _forward, prepare, with_steps
from pellucid.ops import rules
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.ops.rules.function import (
    At,
    Function,
    PerHead,
    Table,
    exp,
    floor,
    log,
    maximum,
    minimum,
    sqrt,
    tanh,
    where,
)

LONGEST = 30.0
LISTED = [1.0]
SLOPES = np.array([1.0, 0.5], np.float32)


def distance(at: At) -> Any:
    return minimum(abs(at.distance), LONGEST)


def near(a: Any, at: At, gain: Any, bias: Any) -> Any:
    return a + gain * tanh(a) + bias


def near_backward(da: Any, a: Any, at: At, gain: Any, bias: Any) -> Any:
    t = tanh(a)
    return da * (1 + gain * (1 - t * t)), da * t, da


NEAR = Function(near, near_backward, {"gain": PerHead(), "bias": Table(31, distance)})


def everything(a: Any, at: At) -> Any:
    """All of the vocabulary, and every place."""
    near = where((at.distance < 0) | (at.distance >= 7), -0.5, sqrt(maximum(at.key, 0.25)))
    even = at.query - 2 * floor(at.query / 2)
    fall = exp(-abs(a)) + log(1 + at.head) / 3 + 0.1 * at.example
    return where((near > 1) & ~(even == 0), a - fall, 0.5 * a + fall) - near


def everything_backward(da: Any, a: Any, at: At) -> Any:
    near = where((at.distance < 0) | (at.distance >= 7), -0.5, sqrt(maximum(at.key, 0.25)))
    even = at.query - 2 * floor(at.query / 2)
    sign = where(a < 0, 1.0, -1.0) * exp(-abs(a))
    return da * where((near > 1) & ~(even == 0), 1 - sign, 0.5 + sign)


def parameters(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(11)
    return tuple(random.standard_normal(s).astype(dtype) for s in ((H,), (H, 31)))


def run(rule: Rule, length: int, source: int, dropout: float = 0.0) -> list[np.ndarray]:
    q, k, v, dout = draw(N, length=length, source=source)
    y, backward = planned(
        ops.attention, q, k, v, rule=rule, dropout=dropout, rng=named(N, length)
    )()
    return [y, *backward(dout)]


@pytest.mark.parametrize("length, source", [(L, S), (70, 150), (3, 300)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("more", [EVERYTHING, rules.causal & rules.window(5)])
def test_a_function_with_a_number_and_a_table(
    length: int, source: int, dropout: float, more: Rule
) -> None:
    """Their gradients too: in float64 the op runs on the reference page."""
    q, k, v, dout = draw(N, length=length, source=source)
    results = {}
    for dtype in (np.float32, np.float64):
        rule = NEAR(*parameters(dtype)) & more
        options = {"rule": rule, "dropout": dropout, "rng": named(N, length)}
        if dtype is np.float32:
            y, backward = planned(ops.attention, q, k, v, **options)()
            results[dtype] = [y, *backward(dout)]
        else:
            wide = [x.astype(dtype) for x in (q, k, v, dout)]
            y, saved = ops.attention(*wide[:3], **options)
            results[dtype] = [y, *ops.attention_backward(wide[3], saved)]
    for y, exact in zip(results[np.float32], results[np.float64], strict=True):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, exact, rtol=2e-5, atol=2e-6 * np.abs(exact).max())


@pytest.mark.parametrize("length, source", [(L, S), (70, 150)])
def test_the_whole_vocabulary(length: int, source: int) -> None:
    q, k, v, dout = draw(N, length=length, source=source)
    rule = Function(everything, everything_backward)()
    compare(ops.attention, (q, k, v), {"rule": rule, "mask": padding(5, 3, 0, source=source)}, dout)


@pytest.mark.parametrize(
    "rule",
    [
        rules.mask(np.linspace(-1, 1, S)) | rules.alibi | rules.soft_cap(2.0),
        Function(everything, everything_backward)() | rules.soft_cap(2.0) | rules.alibi,
    ],
)
def test_any_order(rule: Rule) -> None:
    q, k, v, dout = draw(N)
    compare(ops.attention, (q, k, v), {"rule": rule, "causal": True}, dout)


def test_weights() -> None:
    q, k, *_ = draw(1)
    q, k = (x[0].swapaxes(0, 1) for x in (q, k))
    cu = np.array([0, 3, L]), np.array([0, 5, S])
    rule = NEAR(*parameters()) & rules.causal
    for average in (True, False):
        w, _ = planned(ops.attention_weights, q, k, *cu, rule=rule, average=average)()
        exact, _ = ops.attention_weights(q, k, *cu, rule=rule, average=average)
        np.testing.assert_allclose(w, exact, atol=1e-6)


def test_after_an_offset() -> None:
    q, k, v, _ = draw(1, length=2, source=S)
    whole = draw(1, length=S, source=S)[0].copy()
    whole[..., -2:, :] = q
    rule = NEAR(*parameters()) & rules.causal
    y, _ = planned(ops.attention, q, k, v, rule=rule, offset=np.array([S - 2]))()
    z, _ = planned(ops.attention, whole, k, v, rule=rule)()
    np.testing.assert_allclose(y, z[..., -2:, :], rtol=1e-6)


def test_a_key_that_the_function_forbids_gives_no_gradient() -> None:
    """Its derivative may be what it likes there: NaN."""
    first = Function(
        lambda a, at: where(at.key < 1, a, -np.inf),
        lambda da, a, at: da * where(at.key < 1, 1.0, np.nan),
    )
    y, dq, dk, dv = run(first(), L, S)
    np.testing.assert_array_equal(y, np.broadcast_to(y[..., :1, :], y.shape))
    assert all(np.isfinite(d).all() for d in (dq, dk, dv))
    assert not dk[..., 1:, :].any()


def test_bits_do_not_depend_on_the_threads() -> None:
    """And the kernel has one name in every process: it is compiled for the first alone."""
    program = (
        "import hashlib\n"
        "from tests.kernels.test_attention_function import NEAR, digest, parameters, run\n"
        "found = run(NEAR(*parameters()), 70, 150, 0.4)\n"
        "print(digest(NEAR), hashlib.sha256(b''.join(x.tobytes() for x in found)).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PELLUCID_THREADS": n, "OMP_NUM_THREADS": ""},
            capture_output=True, text=True, check=True,
        ).stdout
        for n in ("1", "2", "5")
    }  # fmt: skip
    assert len(found) == 1
    assert found.pop().split()[0] == digest(NEAR)


@pytest.mark.parametrize(
    "forward, reason",
    [
        (lambda a, at: np.tanh(a), "ufunc 'tanh'"),
        (lambda a, at: a + SLOPES[0], "SLOPES in <lambda> is a ndarray"),
        (functools.partial(lambda a, at, by: a * by, by=0.5), "not written with def or lambda"),
        (lambda a, at: a + LISTED[0], "LISTED in <lambda> is a list"),
        (lambda a, at: a + at.distance % 3, "no % of numbers and 3"),
        (lambda a, at: a**2, "no ** of numbers and 2"),
        (lambda a, at: a * (1 - (at.key < 2)), "no - of 1 and conditions"),
    ],
)
def test_what_cannot_be_compiled_runs_on_the_page(forward: Any, reason: str) -> None:
    q, k, v, _ = draw(N)
    rule = Function(forward, lambda da, a, at: da)()
    with Choices() as choices:
        assert declined(ops.attention, q, k, v, rule=rule)
        dispatch(ops.attention, q, k, v, rule=rule)
        assert reason in str(choices)
        assert "\x1b" not in str(choices)


@pytest.mark.parametrize(
    "forward, backward, reason",
    [
        (lambda a, at: a if a > 0 else 0.1 * a, lambda da, a, at: da, "truth value.*no branches"),
        (lambda a, at: a, lambda da, a, at: (da, da), "1 arrays; got 2"),
        (lambda a, at: a[..., :2], lambda da, a, at: da, "broadcast"),
    ],
)
def test_a_mistake_is_reported_where_the_function_is_made(
    forward: Any, backward: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        Function(forward, backward)
    if "branches" in reason:
        assert forward.__code__ in [at.frame.code.raw for at in caught.traceback]


def test_two_functions_of_one_text_have_one_kernel() -> None:
    """A rule that is made at every step of a loop made a kernel at every step, for ever."""

    def steps() -> Any:
        rule = Function(lambda a, at: a * 1.5, lambda da, a, at: da * 1.5)()
        return prepare(rule, np.array([0, L]), np.array([0, S]), None, (1, H, L, S)).steps

    first, second = steps(), steps()
    assert first[0].function is not second[0].function
    assert with_steps(_forward, first) is with_steps(_forward, second)


def test_another_text_or_another_constant_is_another_kernel() -> None:
    """Not so another function object of the same text."""

    def scaled(by: float) -> Function:
        return Function(lambda a, at: a * by, lambda da, a, at: da * by)

    assert digest(scaled(2.0)) == digest(scaled(2.0)) != digest(scaled(3.0))


def test_a_number_from_outside_is_what_it_is_now() -> None:
    """As on the page: a default, a global or a closure's number that changed is another kernel."""
    q, k, v, _ = draw(N)
    cell = 2.0

    def scaled(a: Any, at: At) -> Any:
        return a * (cell + LONGEST)

    functions = [
        Function(scaled, lambda da, a, at: da),
        *(Function(lambda a, at, by=by: a * by, lambda da, a, at: da) for by in (2.0, 3.0)),
    ]
    found = []
    for function, cell in zip([functions[0], *functions], (2.0, 5.0, 5.0, 5.0), strict=True):  # noqa: B007
        y, _ = planned(ops.attention, q, k, v, rule=function())()
        np.testing.assert_allclose(y, ops.attention(q, k, v, rule=function())[0], atol=1e-5)
        found.append(y)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(found))


def test_a_rule_has_one_set_of_sinks_for_its_heads() -> None:
    q, k, v, _ = draw(N)
    two = np.ones(H, np.float32)
    with pytest.raises(ValueError, match="one set of sinks"):
        rules.sinks(two) & rules.sinks(two)
    for call in (ops.attention, lambda *a, **b: planned(ops.attention, *a, **b)):
        with pytest.raises(ValueError, match="1 heads, the scores 2"):
            call(q, k, v, rule=rules.sinks(two[:1]))


def test_parameters_of_other_shapes_are_refused() -> None:
    gain, table = parameters()
    with pytest.raises(ValueError, match=r"expects gain \(2,\), bias \(2, 31\), got"):
        NEAR(gain, table[:, :-1])
    q, k, v, _ = draw(N)
    rule = NEAR(np.ones(3, np.float32), np.ones((3, 31), np.float32))
    for call in (ops.attention, planned):
        with pytest.raises(ValueError, match="3 heads, the scores 2"):
            call(*((ops.attention,) if call is planned else ()), q, k, v, rule=rule)
