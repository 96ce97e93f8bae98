from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.libraries import back, every_library, same_library, to

from pellucid.core.batch import Batch, Packed, pack_rows, pad_rows, selected

SEQUENCES = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]


def test_sequences_lie_one_after_another() -> None:
    batch = Packed.of(SEQUENCES)
    assert batch.tokens.tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert batch.cu_seqlens.tolist() == [0, 3, 3, 4, 9]
    assert batch.lengths.tolist() == [3, 0, 1, 5]
    assert batch.positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4]
    assert batch.examples.tolist() == [0, 1, 2, 3]
    assert len(batch) == 4


@pytest.mark.parametrize("sequences", [[], [[]], [[], []]])
def test_nothing_is_a_batch_too(sequences: list[list[int]]) -> None:
    batch = Packed.of(sequences)
    assert len(batch) == len(sequences)
    assert batch.tokens.shape == batch.positions.shape == batch.rows.shape == (0,)
    assert batch.padded(0).shape == (len(sequences), 0)
    assert batch.without_last().lengths.tolist() == [0] * len(sequences)


def test_the_padded_view_and_back() -> None:
    batch = Packed.of(SEQUENCES)
    padded = batch.padded(-1)
    assert padded.tolist() == [
        [5, 6, 7, -1, -1],
        [-1, -1, -1, -1, -1],
        [8, -1, -1, -1, -1],
        [9, 10, 11, 12, 13],
    ]
    again = Packed.of([row[:n] for row, n in zip(padded, batch.lengths, strict=True)])
    assert np.array_equal(again.tokens, batch.tokens)
    assert np.array_equal(again.cu_seqlens, batch.cu_seqlens)


def test_a_decoder_s_input_and_output() -> None:
    batch = Packed.of([[1, 5, 6, 2], [1, 2], [1, 7, 2]], examples=[4, 2, 9])
    shown, said = batch.without_last(), batch.without_first()
    assert shown.tokens.tolist() == [1, 5, 6, 1, 1, 7]
    assert said.tokens.tolist() == [5, 6, 2, 2, 7, 2]
    assert np.array_equal(shown.cu_seqlens, said.cu_seqlens)
    assert shown.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert shown.examples.tolist() == [4, 2, 9]


def test_sequences_follow_one_another_pair_by_pair() -> None:
    first, second = [[5], [], [6, 7]], [[8, 9], [3], []]
    joined = Packed.of(first, [4, 2, 9]).followed_by(Packed.of(second))
    expected = Packed.of([a + b for a, b in zip(first, second, strict=True)], [4, 2, 9])
    np.testing.assert_array_equal(joined.tokens, expected.tokens)
    np.testing.assert_array_equal(joined.cu_seqlens, expected.cu_seqlens)
    np.testing.assert_array_equal(joined.examples, expected.examples)
    alone = Packed.of([[], []]).followed_by(Packed.of([[1], [2, 3]]))
    np.testing.assert_array_equal(alone.cu_seqlens, [0, 1, 3])


def test_a_selection_keeps_its_examples_and_so_its_rows() -> None:
    batch = Packed.of(SEQUENCES, examples=[3, 1, 4, 7])
    part = batch.select([3, 0])
    assert part.tokens.tolist() == [9, 10, 11, 12, 13, 5, 6, 7]
    assert part.examples.tolist() == [7, 3]
    assert np.array_equal(part.rows, np.concatenate([batch.rows[4:], batch.rows[:3]]))
    assert len(batch.select([])) == 0


def test_rows_have_names_of_their_own() -> None:
    batch = Packed.of([[0] * 101] * 103)
    assert len(np.unique(batch.rows)) == 101 * 103


def test_useful_tokens_are_those_read_and_those_predicted() -> None:
    batch = Batch(Packed.of([[5, 6, 7], [8]]), Packed.of([[1, 5, 2], [1, 2]]))
    assert batch.useful_tokens == 4 + 3
    assert len(batch) == 2


@every_library
@pytest.mark.parametrize("shape", [(), (3,), (3, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint32])
def test_padding_and_packing_are_inverse(library: str, shape: tuple[int, ...], dtype: Any) -> None:
    if library == "torch" and dtype == np.uint32:
        pytest.skip("torch has no arithmetic on uint32")
    cu = np.array([0, 3, 3, 4, 9])
    x = (1 + np.arange(9 * int(np.prod(shape)))).astype(dtype).reshape(9, *shape)
    padded = pad_rows(to(library, x), cu)
    assert same_library(padded, to(library, x))
    assert back(padded).shape == (4, 5, *shape)
    assert back(padded).dtype == dtype
    assert (back(padded) == 0).sum() == 11 * int(np.prod(shape))
    assert np.array_equal(back(pack_rows(padded, cu)), x)


def test_a_negative_index_selects_from_the_end() -> None:
    batch = Packed.of([[5, 6], [7], [8, 9, 3]], [11, 13, 17])
    found = batch.select([-1, 0, -2])
    assert found.padded(0).tolist() == [[8, 9, 3], [5, 6, 0], [7, 0, 0]]
    assert found.examples.tolist() == [17, 11, 13]
    rows, cu_seqlens = selected(batch.cu_seqlens, np.array([-1, 0, -2]))
    assert (rows.tolist(), cu_seqlens.tolist()) == ([3, 4, 5, 0, 1, 2], [0, 3, 5, 6])
    for outside in (3, -4):
        with pytest.raises(IndexError):
            batch.select([outside])
        with pytest.raises(IndexError):
            selected(batch.cu_seqlens, np.array([outside]))


def test_a_mask_selects_and_numbers_that_are_not_whole_do_not() -> None:
    batch = Packed.of([[5, 6], [7], [8, 9, 3]])
    assert batch.select(batch.lengths > 1).padded(0).tolist() == [[5, 6, 0], [8, 9, 3]]
    with pytest.raises(IndexError):
        batch.select(np.array([1.9]))


@pytest.mark.parametrize("tokens", [[1.7], np.array([1.0])])
def test_tokens_that_are_no_integers_are_refused(tokens: Any) -> None:
    with pytest.raises(TypeError, match=r"float.* integer"):
        Packed.of([[3], tokens])


def test_what_stands_in_the_padding_is_dropped() -> None:
    padded = np.arange(10.0).reshape(2, 5)
    assert pack_rows(padded, np.array([0, 2, 5])).tolist() == [0, 1, 5, 6, 7]


@every_library
@pytest.mark.parametrize("cu", [[0], [0, 0], [0, 0, 0]])
def test_padding_nothing(library: str, cu: list[int]) -> None:
    padded = pad_rows(to(library, np.ones((0, 3))), np.array(cu))
    assert back(padded).shape == (len(cu) - 1, 0, 3)
    assert back(pack_rows(padded, np.array(cu))).shape == (0, 3)
