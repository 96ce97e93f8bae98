"""The hash behind dropout: its bits are fixed for good, and they look like chance."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pellucid.core.batch import Packed, pad_rows
from pellucid.core.rng import Rng, keep_mask, keep_threshold, mix, random_bits, row_keys

# Chi-square with many degrees of freedom is nearly normal: (χ² − df) / √(2 df). The seeds are
# fixed, so a value beyond 4 is a fault of the hash and not bad luck.
LIMIT = 4.0


def excess(observed: np.ndarray, expected: float | np.ndarray) -> float:
    """How many standard deviations chi-square lies above its mean."""
    expected = np.broadcast_to(expected, observed.shape)
    chi = float(((observed - expected) ** 2 / expected).sum())
    df = observed.size - 1
    return (chi - df) / (2 * df) ** 0.5


GOLDEN = [
    *("71f6f9bf", "1ff323eb", "fb2e8f58", "1d18603a", "c9e884e8", "f54338c7"),
    *("b4cc69c4", "8e19f064", "df3b13a1", "06723191", "9b228d55", "96d50047"),
]


def test_the_bits_are_these_for_good() -> None:
    """Saved runs resume with the same dropout, and the compiled twin is held against this."""
    bits = random_bits(Rng(7).fold(3).at(row_keys(np.array([[0], [2]]), np.arange(2))), (2, 2, 3))
    assert bits.dtype == np.uint32
    assert [f"{b:08x}" for b in bits.reshape(-1)] == GOLDEN


def test_mix_is_one_to_one() -> None:
    g = np.random.default_rng(1)
    some = np.unique(g.integers(0, 2**32, 200_003, dtype=np.uint32))
    assert len(np.unique(mix(some))) == len(some)
    assert len(np.unique(mix(np.arange(200_003, dtype=np.uint32)))) == 200_003


def test_every_input_bit_moves_half_of_the_output_bits() -> None:
    x = np.random.default_rng(2).integers(0, 2**32, 20_011, dtype=np.uint32)
    for bit in range(32):
        flipped = np.bitwise_count(mix(x) ^ mix(x ^ np.uint32(1 << bit)))
        assert 15.5 < flipped.mean() < 16.5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_rate_holds_in_every_row_and_every_column(p: float) -> None:
    rows, channels = 1009, 1013
    keep = keep_mask(Rng(11).fold(1), (rows, channels), p)
    variance = p * (1 - p)
    assert abs(keep.mean() - (1 - p)) < LIMIT * (variance / keep.size) ** 0.5
    for axis, n in ((0, rows), (1, channels)):
        z2 = (keep.sum(axis) - n * (1 - p)) ** 2 / (n * variance)  # chi-square, one degree each
        assert abs(z2.sum() - z2.size) < LIMIT * (2 * z2.size) ** 0.5


@pytest.mark.parametrize("shape", [(4, 64), (128, 3), (1, 65_537), (65_537, 1)])
def test_the_values_fill_their_range_evenly(shape: tuple[int, int]) -> None:
    draws = np.concatenate([random_bits(Rng(s), shape).reshape(-1) for s in range(64)])
    for shift in (24, 12, 0):  # high bits, middle bits, low bits
        counts = np.bincount((draws >> np.uint32(shift)) & np.uint32(255), minlength=256)
        assert abs(excess(counts, draws.size / 256)) < LIMIT


def neighbours() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Two masks each that stand side by side in one way and must have nothing in common."""
    shape = (499, 503)
    rows = row_keys(np.zeros(shape[0], int), np.arange(shape[0]))
    later = row_keys(np.zeros(shape[0], int), np.arange(1, shape[0] + 1))
    other = row_keys(np.ones(shape[0], int), np.arange(shape[0]))

    def mask(rng: Rng) -> np.ndarray:
        return keep_mask(rng, shape, 0.5)

    step, whole = Rng(5).fold(17), mask(Rng(5).fold(17).at(rows))
    return {
        "seeds": (mask(Rng(5)), mask(Rng(6))),
        "steps": (mask(Rng(5).fold(17)), mask(Rng(5).fold(18))),
        "sites": (mask(step.fold(0)), mask(step.fold(1))),
        "site and its parent": (mask(step), mask(step.fold(0))),
        "order of sites": (mask(step.fold(0).fold(1)), mask(step.fold(1).fold(0))),
        "examples": (whole, mask(step.at(other))),
        "positions": (whole, mask(step.at(later))),
        "rows": (whole[:-1], whole[1:]),
        "rows two apart": (whole[:-2], whole[2:]),
        "channels": (whole[:, :-1], whole[:, 1:]),
        "diagonals": (whole[:-1, :-1], whole[1:, 1:]),
        "other diagonals": (whole[:-1, 1:], whole[1:, :-1]),
        "halves": (whole[:, :251], whole[:, 251:502]),
    }


PAIRS = neighbours()


def test_the_name_of_a_row_decides_and_not_its_place() -> None:
    names = row_keys(np.zeros(7, int), np.arange(7))
    first, later = (random_bits(Rng(5).at(rows), (6, 11)) for rows in (names[:-1], names[1:]))
    assert np.array_equal(first[1:], later[:-1])


@pytest.mark.parametrize("name", PAIRS)
def test_neighbours_are_independent(name: str) -> None:
    first, second = PAIRS[name]
    table = np.array([[(first == a) & (second == b) for b in (0, 1)] for a in (0, 1)]).sum((2, 3))
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < LIMIT**2  # one degree of freedom
    agree = (first == second).mean(axis=1)  # and in every single row
    spread = (agree - 0.5) * 2 * first.shape[1] ** 0.5
    assert np.abs(spread).max() < 5.0


def test_no_two_rows_of_a_large_batch_share_their_bits() -> None:
    rows = row_keys(np.arange(128)[:, None], np.arange(257)).reshape(-1)
    starts = Rng(3).at(rows).row_hash(rows.shape)
    assert len(np.unique(starts)) >= rows.size - 3  # 32 bits: a chance meeting is allowed


def test_a_seed_and_a_row_are_not_interchangeable() -> None:
    """Were both mixed alike, row 3 under seed 5 would be row 5 under seed 3, and row s all 0."""
    starts = np.stack([Rng(seed).row_hash((53,)) for seed in range(53)])
    assert len(np.unique(starts)) == starts.size


def test_folds_do_not_meet() -> None:
    step = [Rng(seed).fold(i) for seed in range(3) for i in range(50)]
    sites = [*step, *(r.fold(i) for r in step for i in range(20))]
    assert len({r.site_key() for r in sites}) == len(sites)


def test_an_rng_is_a_value() -> None:
    rng = Rng(4).fold(2)
    first = random_bits(rng, (3, 5))
    random_bits(rng, (7, 11))
    np.random.default_rng(0).random()
    assert np.array_equal(random_bits(rng, (3, 5)), first)
    with pytest.raises(AttributeError):
        rng.seed = 5  # type: ignore[misc]


def test_rows_without_names_are_counted_in_order() -> None:
    assert np.array_equal(random_bits(Rng(4), (2, 3, 5)).reshape(6, 5), random_bits(Rng(4), (6, 5)))


def test_no_axes_in_front_and_nothing_at_all() -> None:
    assert random_bits(Rng(4), (5,)).tolist() == random_bits(Rng(4), (1, 5))[0].tolist()
    assert random_bits(Rng(4), (0, 5)).shape == (0, 5)
    assert random_bits(Rng(4), (3, 0)).shape == (3, 0)
    assert row_keys(np.array(2), np.array(3)) == row_keys(np.array([2]), np.array([3]))[0]


def test_names_of_another_batch_are_refused() -> None:
    rng = Rng(4).at(row_keys(np.zeros(3, int), np.arange(3)))
    with pytest.raises(ValueError, match=r"names rows of shape \(3,\).*shape \(4,\)"):
        random_bits(rng, (4, 5))


def test_the_extremes_of_the_rate() -> None:
    shape = (101, 103)
    assert keep_mask(Rng(1), shape, 0.0).all()
    assert not keep_mask(Rng(1), shape, 1.0).any()
    assert keep_threshold(0.5) == 2**31
    assert keep_threshold(1 - 1e-12) == 2**32 - 1  # the most that 32 bits hold
    assert keep_mask(Rng(1), shape, 1e-12).all()
    assert keep_mask(Rng(1), shape, 1 - 1e-12).mean() < 1e-3


@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (1.5, TypeError), ("3", TypeError), (None, TypeError), (np.nan, TypeError)],
)
def test_a_seed_that_is_none_is_refused_at_once(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="seed must be"):
        Rng(seed)


def test_the_seed_counts_modulo_two_to_the_32() -> None:
    assert Rng(2**32 + 5).site_key() == Rng(5).site_key()


def test_packed_and_padded_draw_the_same_bits() -> None:
    batch = Packed.of([[1] * 5, [1] * 2, [], [1] * 3], examples=[4, 0, 9, 2])
    rng, shape = Rng(6).fold(1), (len(batch.tokens), 7)
    packed = random_bits(rng.at(batch.rows), shape)
    keys = row_keys(batch.examples[:, None], np.arange(5))
    padded = random_bits(rng.at(keys), (4, 5, 7))
    inside = pad_rows(np.ones(len(batch.tokens)), batch.cu_seqlens) == 1
    assert np.array_equal(padded[inside], packed)


def test_a_batch_in_parts_draws_the_bits_of_the_whole() -> None:
    whole = Packed.of([[1] * n for n in (5, 2, 3, 7)])
    rng = Rng(6).fold(1)
    bits = random_bits(rng.at(whole.rows), (17, 3))
    for order in itertools.permutations(range(4)):
        for parts in ((order[:1], order[1:]), (order[:2], order[2:])):
            for part in map(whole.select, parts):
                found = random_bits(rng.at(part.rows), (len(part.tokens), 3))
                expected = [
                    bits[whole.cu_seqlens[i] : whole.cu_seqlens[i + 1]] for i in part.examples
                ]
                assert np.array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.uint8])
def test_numbers_of_numpys_are_numbers(kind: type) -> None:
    """Where they are narrower than Python's, the hash overflowed them."""
    rng = Rng(kind(5))
    assert rng.fold(kind(3)) == Rng(5).fold(3)
    assert rng.site_key() == Rng(5).site_key()
    assert rng.fold(1).fold(kind(2)).site_key() == Rng(5).fold(1).fold(2).site_key()


def test_a_number_that_is_not_whole_is_not_cut() -> None:
    with pytest.raises(TypeError):
        Rng(1).fold(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Rng(1.5).site_key()  # type: ignore[arg-type]
