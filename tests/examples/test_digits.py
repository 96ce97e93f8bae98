"""Digits as patches: the derivatives, the cut, and what positions are for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from digits import MODELS, images, initial, learned, model, patches, slopes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_derivative_equals_a_difference(kind: str, seed: int) -> None:
    by_hand, by_difference = slopes(kind, seed)
    assert by_hand == pytest.approx(by_difference, rel=1e-5)


def test_a_token_is_a_square_of_pixels() -> None:
    x = np.arange(128).reshape(2, 8, 8)
    tokens = patches(x)
    assert tokens.shape == (2, 16, 4)
    assert tokens[0, 0].tolist() == [0, 1, 8, 9]
    assert tokens[1, 6].tolist() == (64 + np.array([20, 21, 28, 29])).tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_without_positions_the_order_of_the_patches_does_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, _ = images(3, random)
    moved = np.concatenate([x[:, 4:], x[:, :4]], axis=1)  # the same patches, two rows further
    for kind, same in (("no positions", True), ("encoder", False)):
        p = initial(kind, random)
        assert np.allclose(model(p, x)[0], model(p, moved)[0], atol=1e-9) is same


def test_it_learns_digits_as_the_page_says() -> None:
    right = learned("linear", 1)
    assert right == pytest.approx(0.878, abs=0.01)
    for name in ("articles.md", "articles.ko.md"):
        assert "87.8 %" in (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_digits_are_drawn_alike_with_a_seed() -> None:
    x, digits = images(40, np.random.default_rng(7))
    again, _ = images(40, np.random.default_rng(7))
    assert np.array_equal(x, again)
    assert len(set(digits.tolist())) == 10
    assert x.max() > 0.8
    assert abs(np.median(x)) < 0.2
