from __future__ import annotations

import numpy as np
import pytest
from tests.ops.libraries import back, every_library, to

from pellucid.ops import embedding, embedding_backward, sinusoidal

V, E = 7, 5


def table() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((V, E))


@every_library
def test_a_repeated_token_adds_its_gradients(library: str) -> None:
    """hcrot's assigns them, so that only the last place counts."""
    index = np.array([[3, 0, 3], [3, 6, 0]])
    dy = np.random.default_rng(2).standard_normal((2, 3, E))
    _, saved = embedding(to(library, index), to(library, table()))
    found = back(embedding_backward(to(library, dy), saved))
    np.testing.assert_allclose(found[3], dy[0, 0] + dy[0, 2] + dy[1, 0], rtol=1e-14)
    np.testing.assert_allclose(found[0], dy[0, 1] + dy[1, 2], rtol=1e-14)
    assert not found[[1, 2, 4, 5]].any()


@every_library
@pytest.mark.parametrize("padding_idx", [0, 3, 6])
def test_the_padding_row_gets_no_gradient(library: str, padding_idx: int) -> None:
    index = np.array([3, 0, 3, 6])
    y, saved = embedding(to(library, index), to(library, table()), padding_idx)
    assert np.array_equal(back(y), table()[index])  # it is looked up like any other
    found = back(embedding_backward(to(library, np.ones((4, E))), saved))
    times = np.bincount(index, minlength=V)
    times[padding_idx] = 0
    assert np.array_equal(found, np.repeat(times[:, None], E, 1))


def test_a_gradient_that_is_no_number_stops_at_the_padding() -> None:
    _, saved = embedding(np.array([3, 0]), table(), 0)
    dy = np.array([[1.0] * E, [np.nan] * E])
    assert np.isfinite(embedding_backward(dy, saved)).all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_any_shape_of_tokens(shape: tuple[int, ...]) -> None:
    y, saved = embedding(np.zeros(shape, int), table())
    assert y.shape == (*shape, E)
    dweight = embedding_backward(np.ones_like(y), saved)
    assert dweight[0].tolist() == [np.prod(shape)] * E
    assert not dweight[1:].any()


@every_library
@pytest.mark.parametrize("bad", [-1, V])
def test_a_token_outside_the_table_is_an_error(library: str, bad: int) -> None:
    with pytest.raises(IndexError, match=f"embedding has {V} rows.*{bad}"):
        embedding(to(library, np.array([0, bad, 2])), to(library, table()))


def test_what_is_no_table_is_said() -> None:
    with pytest.raises(ValueError, match=rf"a table \(V, E\), got shape \({V},\)"):
        embedding(np.array([0, 2]), table()[:, 0])


def test_the_table_handed_out_is_not_the_table() -> None:
    weight = table()
    y, _ = embedding(np.array([1, 1]), weight)
    y[0] = 0.0
    assert np.array_equal(weight, table())


@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_positions_are_sines_and_cosines_of_falling_speed(width: int) -> None:
    found = sinusoidal(11, width)
    assert found.shape == (11, width)
    for t in range(11):
        for i in range(width):
            angle = t / 10000 ** ((i - i % 2) / width)
            assert found[t, i] == pytest.approx(np.cos(angle) if i % 2 else np.sin(angle))


def test_a_step_in_position_is_a_rotation() -> None:
    """The paper's reason for sinusoids: P[t + k] is a linear map of P[t], the same for every t."""
    found = sinusoidal(50, 8)
    solution = np.linalg.lstsq(found[:-3], found[3:], rcond=None)[0]
    np.testing.assert_allclose(found[:-3] @ solution, found[3:], atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2.0)


def test_no_positions() -> None:
    assert sinusoidal(0, 4).shape == (0, 4)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (0,), ()])
def test_rows_without_channels(shape: tuple[int, ...]) -> None:
    y, saved = embedding(np.ones(shape, int), np.ones((7, 0)), 1)
    assert y.shape == (*shape, 0)
    assert embedding_backward(y, saved).shape == (7, 0)


def test_an_index_that_is_not_an_integer_is_an_error_and_not_cut_off() -> None:
    with pytest.raises(TypeError, match="float64"):
        embedding(np.array([1.7]), table())
