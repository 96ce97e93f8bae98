"""Exact numbers: the laws that a proof needs, and what has no form."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pellucid.check import field
from pellucid.check.exact import _drawn
from pellucid.check.field import GENERATORS, PRIMES, Exact, NoFormError, RedrawError
from pellucid.core.array import erf, namespace


def drawn(*shape: int) -> Exact:
    return _drawn(np.random.default_rng(shape).standard_normal(shape))


def same(x: Exact, y: Exact) -> bool:
    pairs = zip(x.fields, y.fields, strict=True)
    return all(a is None or b is None or bool((a == b).all()) for a, b in pairs)


def test_the_primes_are_prime_and_each_divides_the_one_before_less_1() -> None:
    """Lucas and Lehmer for 2¹²⁷ − 1; Pocklington, from the last to the first."""
    s, last = 4, PRIMES[-1]
    for _ in range(125):
        s = (s * s - 2) % last
    assert s == 0
    for p, q in pairwise(PRIMES):
        assert (p - 1) % q == 0
        assert q * q > p
        a = next(a for a in range(2, 50) if pow(a, (p - 1) // q, p) != 1)
        assert pow(a, p - 1, p) == 1
        assert np.gcd(np.array([pow(a, (p - 1) // q, p) - 1], object), p)[0] == 1
    assert PRIMES[0] % 4 == 3
    assert all(g != 1 for g in GENERATORS)
    triples = zip(GENERATORS, PRIMES, PRIMES[1:], strict=False)
    assert all(pow(g, q, p) == 1 for g, p, q in triples)


def test_exp_makes_products_of_sums_in_two_fields() -> None:
    x, y = drawn(5), drawn(5)
    both = field.exp(x + y)
    assert same(both, field.exp(x) * field.exp(y))
    assert same(field.exp(x - y), field.exp(x) / field.exp(y))
    assert [part is None for part in both.fields] == [False, False, True]
    assert field.exp(field.exp(x)).fields[1:] == (None, None)
    with pytest.raises(NoFormError, match="three fields"):
        field.exp(field.exp(field.exp(x)))


def test_a_decimal_is_the_rational_that_it_says() -> None:
    assert same(field.asarray(0.1) + field.asarray(0.2), field.asarray(0.3))
    assert same(field.asarray(0.044715) * 1_000_000, field.asarray(44715.0))


def test_exp_of_log_is_the_number_and_minus_infinity_is_nothing() -> None:
    x, y = drawn(3), field.exp(drawn(3))
    there = field.exp(x - field.log(y))
    assert (there.fields[0] == (field.exp(x) / y).fields[0]).all()
    nothing = field.exp(field.full_like(x, -np.inf) + x)
    assert not nothing.fields[0].any()


def test_roots_are_roots_or_say_where_there_is_none() -> None:
    x = drawn(64)
    root = field.sqrt(x * x)
    assert (root.fields[0] ** 2 % PRIMES[0] == (x * x).fields[0]).all()
    with pytest.raises(RedrawError) as none:
        field.sqrt(x)
    assert 16 < none.value.places.sum() < 48
    with pytest.raises(RedrawError):
        x / field.zeros_like(x)


def test_tangents_are_derivatives() -> None:
    x = drawn(7)
    along = Exact(x.real, x.fields, drawn(7).fields[0])
    t, dx = field.tanh(x), along.tangent
    expected = (1 - t * t).fields[0] * dx % PRIMES[0]
    assert (field.tanh(along).tangent == expected).all()
    assert (field.log(along).tangent * x.fields[0] % PRIMES[0] == dx).all()
    root = field.sqrt(along * along)
    assert (2 * root.fields[0] * root.tangent % PRIMES[0]
            == 2 * x.fields[0] * dx % PRIMES[0]).all()  # fmt: skip


def test_what_has_no_form_says_so() -> None:
    x = drawn(2)
    assert namespace(x) is field
    with pytest.raises(NoFormError, match="trunc has no form"):
        erf(x)
    with pytest.raises(NoFormError, match="cos of what is learnt"):
        field.cos(Exact(x.real, x.fields, x.fields[0]))
