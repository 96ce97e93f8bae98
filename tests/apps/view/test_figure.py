from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.apps.view.samples import bpe, shaken, speaking

from pellucid.apps import view
from pellucid.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture() -> view.Picture:
    return view.attention(shaken(), [5, 6, 7, 5], [4, 12, 8])


def panels(figure: Figure) -> list[Any]:
    return [axis for axis in figure.axes if axis.images]


def test_every_layer_and_head_is_drawn() -> None:
    seen = picture()
    drawn = panels(seen.figure("encoder"))
    assert len(drawn) == 2 * 3
    maps = seen.record.layers("encoder")
    for place, axis in enumerate(drawn):
        image = axis.images[0].get_array()
        np.testing.assert_array_equal(image, maps[place // 3].probabilities[place % 3])


def test_a_map_of_one_head_has_its_tokens_as_labels() -> None:
    (axis,) = panels(picture().figure("cross", layer=2, head=3))
    assert [t.get_text() for t in axis.get_xticklabels()] == ["5", "6", "7", "5"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["<s>", "4", "12", "8"]
    assert axis.get_title() == "layer 2, head 3"


def test_hangul_is_drawn_or_named(caplog: pytest.LogCaptureFixture) -> None:
    from pellucid.apps.view import fonts

    with caplog.at_level(logging.WARNING):
        families = fonts.families_for("가 a")
    assert families[0] == "DejaVu Sans"
    assert len(families) > 1 or "가 (U+AC00)" in caplog.text


def test_a_font_that_is_gone_or_damaged_has_no_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pellucid.apps.view import fonts

    (tmp_path / "damaged.ttf").write_bytes(b"no font")
    stale = [(name, str(tmp_path / f"{name}.ttf")) for name in ("gone", "damaged")]
    monkeypatch.setattr(fonts, "_candidates", lambda: stale)
    with caplog.at_level(logging.WARNING):
        assert fonts.families_for("가 a") == ["DejaVu Sans"]
    assert "가 (U+AC00)" in caplog.text


def test_a_font_installed_since_matplotlib_listed_them_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pellucid.apps.view import fonts

    new = fonts.font_manager.findfont(fonts.FIRST)
    (tmp_path / "damaged.ttf").write_bytes(b"no font")
    found = [str(tmp_path / "damaged.ttf"), new]
    monkeypatch.setattr(fonts.font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", lambda: found)
    assert fonts._candidates() == [(fonts.FIRST, new)]


def test_characters_that_no_font_has_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pellucid.apps.view import fonts

    monkeypatch.setattr(fonts, "_candidates", list)
    with caplog.at_level(logging.WARNING):
        view.attention(speaking(), "가나").figure("encoder", 1, 1)
    assert "가 (U+AC00)" in caplog.text
    assert "fonts-noto-cjk" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fonts.families_for("👧")
    assert "👧 (U+1F467)" in caplog.text
    assert "Hangul" not in caplog.text


@pytest.mark.filterwarnings("error")
def test_a_saved_figure_says_once_what_no_font_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pellucid.apps.view import fonts

    monkeypatch.setattr(fonts, "_candidates", list)
    with caplog.at_level(logging.WARNING):
        view.attention(speaking(), "가나").save(tmp_path / "a.png", "encoder", 1, 1)
    assert len(caplog.records) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("chosen", [{}, {"layer": 1, "head": 1}])
def test_long_tokens_are_cut_and_leave_room_for_the_maps(chosen: dict[str, int]) -> None:
    from pellucid.data.tokenizers import train_tokenizer

    word = "supercalifragilistic" * 8
    trained = speaking(train_tokenizer([word] * 3, "bpe", 460))
    figure = view.attention(trained, f"{word} {word}").figure("encoder", **chosen)
    labels = [label.get_text() for label in panels(figure)[0].get_yticklabels()]
    assert labels[0] == word[:19] + "…"
    assert min(axis.get_window_extent().height for axis in panels(figure)) > 100


def test_a_title_is_as_long_as_it_is_shown() -> None:
    from pellucid.data.tokenizers import train_tokenizer

    text = "a" + 7 * "$$$"
    trained = speaking(train_tokenizer([text, " "], kind="char"))  # else it reads words: a
    figure = view.attention(trained, text, text).figure("encoder", 1, 1)
    (title,) = (words.get_text() for words in figure.texts)
    assert title.count("$") == title.count("\\$") == 42


def test_what_steers_a_terminal_is_not_in_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    from pellucid.apps.view import fonts

    with caplog.at_level(logging.WARNING):
        fonts.families_for("\x1b a")
    assert "no installed font has U+001B;" in caplog.text
    assert "\x1b" not in caplog.text


def test_dollars_are_no_mathematics() -> None:
    from pellucid.data.tokenizers import train_tokenizer

    text = "$a b_{$"  # mathematics that matplotlib would refuse to draw
    trained = speaking(train_tokenizer([text], kind="char"))
    figure = view.attention(trained, text).figure("encoder", 1, 1)
    figure.draw_without_rendering()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html", "txt"])
def test_the_ending_says_what_is_written(ending: str, tmp_path: Path) -> None:
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype", "txt": b"c"}
    path = picture().save(tmp_path / f"a.{ending}", "cross", 1, 1)
    assert path.read_bytes().startswith(starts[ending])


def test_an_svg_of_any_text_is_xml(tmp_path: Path) -> None:
    seen = view.attention(speaking(bpe()), "he\x06l\x1b[31mlo")
    assert seen.record.title.startswith("heU+0006lU+001B[31mlo → ")
    ElementTree.parse(seen.save(tmp_path / "a.svg", "encoder", 1, 1))


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.gif: a picture's name ends in \.html"):
        picture().save(tmp_path / "a.gif")


@pytest.mark.parametrize("ending", ["png", "html", "txt"])
def test_what_cannot_be_written_leaves_the_old_file_whole(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"old")
    (tmp_path / f".tmp-a.{ending}").mkdir()  # in the way of the new one
    with pytest.raises(UserError, match=rf"a\.{ending}: cannot be written"):
        picture().save(path)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"layer": 3}, "no layer 3 of cross-attention; layers are 1 to 2"),
        ({"layer": 0}, "no layer 0"),
        ({"head": 4}, "no head 4; heads are 1 to 3"),
        ({"kind": "self"}, "this model has no self; it has: encoder, decoder, cross"),
    ],
)
def test_what_is_not_there_is_named(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        picture().figure(**chosen)
    with pytest.raises(UsageError, match=message):
        picture().terminal(**chosen)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install .*'matplotlib>="):
        picture().figure()
