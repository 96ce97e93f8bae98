"""The numbers behind the pictures, and that every picture has its titles in both languages."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from pellucid.apps.teach import pictures
from pellucid.system.language import Language


@pytest.mark.parametrize("name", pictures.ACTIVATIONS)
def test_derivatives_match_differences_of_the_functions(name: str) -> None:
    x = np.array([-2.3, -0.7, 0.4, 1.9])
    _, slope = pictures.curve(name, x)
    h = 1e-6
    ahead, behind = (pictures.curve(name, x + s)[0] for s in (h, -h))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-6)


def test_gelu_minimum_is_lower_than_its_neighbours() -> None:
    x, y = pictures.gelu_minimum()
    around, _ = pictures.curve("GELU", np.array([x - 1e-3, x + 1e-3]))
    assert (around > y).all()


def test_variance_is_the_width_and_the_scale_undoes_it() -> None:
    for d_k in (8, 64):
        products = pictures.scores(d_k, 8)
        assert products.var() == pytest.approx(d_k, rel=0.05)


def test_the_top_weight_falls_with_keys_and_rises_with_width_unless_scaled() -> None:
    by_keys = [pictures.top_weight(64, keys, 0.5) for keys in (2, 8, 32)]
    assert by_keys == sorted(by_keys, reverse=True)
    assert pictures.top_weight(512, 8, 0.0) > pictures.top_weight(8, 8, 0.0) + 0.2
    assert pictures.top_weight(512, 8, 0.5) == pytest.approx(
        pictures.top_weight(8, 8, 0.5), abs=0.03
    )


def titles(figure: Any) -> list[str]:
    """Every title and axis label of a figure."""
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    words = [word for ax in panels for word in (ax.get_title(), ax.get_xlabel())]
    return [figure.get_suptitle(), *words]


@pytest.mark.parametrize("name", pictures.PICTURES)
@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_panel_has_a_title_and_a_labelled_axis(name: str, language: Language) -> None:
    words = titles(pictures.PICTURES[name](language))
    assert all(words), words
    korean = any("가" <= c <= "힣" for c in "".join(words))
    assert korean == (language == "ko")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_without_a_korean_font_labels_are_english_and_one_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pellucid.apps.view import fonts

    monkeypatch.setattr(fonts, "_candidates", list)
    with caplog.at_level(logging.WARNING):
        english = titles(pictures.PICTURES[name]("ko"))
    assert english == titles(pictures.PICTURES[name]("en"))
    assert "fonts-noto-cjk" in caplog.text
    assert "boxes" not in caplog.text
