"""A user's function of scores, compiled into the kernels of attention."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import mmap
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, planned
from tests.kernels.test_attention import H, L, N, S, draw, named, padding

from pellucid import ops
from pellucid.core.dispatch import dispatch
from pellucid.kernels import attention_rule, flash
from pellucid.kernels.attention_function import _inside, _places, digest
from pellucid.kernels.backend.compile import Kernel, announce, instruction, variant
from pellucid.kernels.backend.simd import LANES, ints
from pellucid.kernels.choices import Choices
from pellucid.kernels.flash import _forward, prepare, with_steps
from pellucid.ops import rules
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.ops.rules import function as page_of
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


def test_compiling_a_function_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    """It takes a quarter of a minute, in which nothing else is said."""
    rule = Function(near, near_backward, NEAR.learnt)(*parameters())
    steps = prepare(rule, np.array([0, L]), np.array([0, S]), None, (1, H, L, S)).steps
    about = with_steps(_forward, steps).about
    announce.cache_clear()
    with caplog.at_level("INFO"):
        announce(about)
        announce(about)
    (line,) = caplog.messages
    assert line == "compiling kernels for the function near, in about 15 seconds; they are kept"


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


PLACES = 5000
WHOLE = Table(PLACES * PLACES, lambda at: at.query * PLACES + at.key)
"""Of each query and key its own number: 25,000,000, of which float32 knows every second."""
BY_PLACE = Function(lambda a, at, bias: a + bias, lambda da, a, at, bias: (da, da), {"bias": WHOLE})


class AtTheEnd:
    """NumPy, but that large arrays end where a page begins that may be neither read nor written."""

    def __init__(self) -> None:
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def guarded(self, x: np.ndarray) -> np.ndarray:
        if x.size < WHOLE.size:
            return x
        page = mmap.PAGESIZE
        pages = -(-x.nbytes // page)
        memory = mmap.mmap(-1, (pages + 1) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + pages * page), page, 0)
        y = np.frombuffer(memory, x.dtype, x.size, pages * page - x.nbytes).reshape(x.shape)
        y[:] = x
        self.made += 1
        return y

    def concatenate(self, *arguments: Any, **options: Any) -> np.ndarray:
        return self.guarded(np.concatenate(*arguments, **options))

    def zeros(self, *arguments: Any, **options: Any) -> np.ndarray:
        return self.guarded(np.zeros(*arguments, **options))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
def test_every_number_of_a_large_table_is_read_and_gets_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an index in float32 half of them were others', and the last one was behind the table."""
    table = np.zeros((1, WHOLE.size), np.float32)
    table[0, -PLACES + 1 :: 2] = 5.0
    q, k, v = (np.zeros((1, 1, n, 2), np.float32) for n in (1, PLACES, PLACES))
    v[..., 1::2, 0] = 1.0
    dout = np.array([[[[1.0, 0.0]]]], np.float32)
    rule, offset = BY_PLACE(table), np.array([PLACES - 1])
    expected = 1 / (1 + math.exp(-5))
    p = np.where(np.arange(PLACES) % 2, expected, 1 - expected) / (PLACES / 2)
    bias = p * (v[0, 0, :, 0] - expected)

    def found(run_of: Any) -> Any:
        y, backward = run_of(ops.attention, q, k, v, rule=rule, offset=offset)()
        return y[0, 0, 0, 0], backward(dout)[3][0]

    def reference(*args: Any, **options: Any) -> Any:
        y, saved = ops.attention(*args[1:], **options)
        return lambda: (y, lambda dy: ops.attention_backward(dy, saved))

    def on_guard(*args: Any, **options: Any) -> Any:  # its kernels have been compiled above
        near = AtTheEnd()
        monkeypatch.setattr(attention_rule, "np", near)
        monkeypatch.setattr(flash, "np", near)
        result = planned(*args, **options)
        return lambda: (result()[0], lambda dy: (result()[1](dy), near.made == 2 or 1 / 0)[0])

    for run_of in (reference, planned, on_guard):
        y, gradient = found(run_of)
        assert y == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(gradient[-PLACES:], bias, rtol=1e-4, atol=1e-9)
        assert not gradient[:-PLACES].any()


@instruction("i8", ints, "i8")
def lane(builder, index, i):  # type: ignore[no-untyped-def]
    """One of an index's lanes."""
    return builder.extract_element(index, i)


SIZES = [31, 2**24 - 1, 2**24, 2**24 + 1, 2**24 + 3, PLACES * PLACES, 2**31 + 5, 2**40 + 1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_index_on_the_page_is_an_integer(size: int, dtype: Any) -> None:
    """Whatever the scores are: their dtype holds no place of a table."""
    table = Table(size, lambda at: size - 3 + at.key - at.query)
    at = page_of._places(np.zeros((2, 3, 7), dtype), np.arange(3)[:, None] - np.arange(7))
    index = page_of._flat_index(table, 2, at)
    place = np.clip(size - 3 - at.distance, 0, size - 1)
    np.testing.assert_array_equal(index, np.stack([place, place + size]))
    assert index.dtype == np.int64


@pytest.mark.parametrize("size", SIZES)
def test_an_index_in_a_kernel_is_an_integer(size: int) -> None:
    """On both sides of a table's end, and of 0; in float32 there are no such numbers."""

    def indices(first: Any, found: Any) -> None:
        place = _places(np.int64(0), (0, 0, 0, 0, 0, np.int64(0), first, np.int64(0), np.int64(0)))
        index = _inside(place.key, size)
        for i in range(LANES):
            found[i] = lane(index, i)

    kernel = Kernel(variant(indices, str(size)), ("i8", "i8[::1]"))
    for first in (size - 3, size - LANES, size + 10, -3, 0, 2**62):
        found = np.empty(LANES, np.int64)
        kernel(first, found)
        np.testing.assert_array_equal(found, np.clip(first + np.arange(LANES), 0, size - 1))


def test_floats_may_not_index_a_large_table() -> None:
    """float32, in which kernels compute, knows every whole number up to 2²⁴ alone."""
    for index in (lambda at: at.query / 2, lambda at: floor(0.5 * at.key), lambda at: 3.0):
        make = functools.partial(Function, lambda a, at, b: a + b, lambda da, a, at, b: (da, da))
        make({"b": Table(2**24, index)})
        with pytest.raises(ValueError, match="16,777,217 numbers is made of floats"):
            make({"b": Table(2**24 + 1, index)})


@pytest.mark.parametrize("length, source", [(70, 150), (L, S)])
def test_an_index_in_integers_and_floats(length: int, source: int) -> None:
    """The whole vocabulary in an index: the kernel finds what the page does."""

    def index(at: At) -> Any:
        near = where(at.distance < 5, minimum(abs(-at.distance), 7), 9)
        far = maximum(where(at.key > 3, 1, 0), at.head - at.example)
        return near + 2 * far + floor(at.key / 4) + minimum(at.query, 2.5) + sqrt(at.head)

    added = Function(
        lambda a, at, bias: a + bias, lambda da, a, at, bias: (da, da), {"bias": Table(23, index)}
    )
    table = np.random.default_rng(5).standard_normal((H, 23)).astype(np.float32)
    q, k, v, dout = draw(N, length=length, source=source)
    compare(ops.attention, (q, k, v), {"rule": added(table)}, dout)
