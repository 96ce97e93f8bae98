"""The page as a file: it holds the record, nothing in a text can break out, and it stays small."""

from __future__ import annotations

import base64
import json
import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, shaken, speaking

import pellucid
from pellucid.apps import view
from pellucid.apps.view import page as page_module
from pellucid.apps.view.page import PRECISIONS, Precision, as_json, as_text, rounded
from pellucid.apps.view.record import Record, Text
from pellucid.apps.view.tokens import Label
from pellucid.core.errors import UsageError

HOSTILE = '</script><script>alert("1")</script><!--&amp;\u2028\\ /*record*/ <!--title-->'


def record() -> Record:
    return view.attention(shaken(), [5, 6, 7, 5], [4, 12, 8]).record


def embedded(html: str) -> dict[str, object]:
    found = re.findall(r'<script id="record" type="application/json">(.*?)</script>', html, re.S)
    assert len(found) == 1
    values: dict[str, object] = json.loads(found[0])
    return values


def test_the_record_is_inside() -> None:
    one = record()
    assert embedded(view.Picture(one).html()) == json.loads(json.dumps(as_json(one)))


def test_no_text_breaks_out() -> None:
    one = replace(
        record(), title=HOSTILE, source=(Label(HOSTILE),) * 4, notes=(Text(HOSTILE, HOSTILE),)
    )
    html = view.Picture(one).html()
    assert html.count("<script") == view.Picture(record()).html().count("<script")
    assert embedded(html)["title"] == HOSTILE
    assert embedded(html)["source"] == [[HOSTILE, "text"]] * 4


def test_the_page_forbids_itself_every_request() -> None:
    html = view.Picture(record()).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert policy[1].startswith("default-src 'none'")
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def precision(values: dict[str, Any]) -> Precision:
    (found,) = {Precision(*(m[name]["bits"] for name in Precision._fields)) for m in values["maps"]}
    return found


def test_a_large_page_becomes_coarser_and_says_by_how_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = record()
    fine = as_json(one)
    assert precision(fine) == PRECISIONS[0]
    assert fine["off"] < 2e-6
    monkeypatch.setattr(page_module, "LARGEST", 1)
    coarse = as_json(one)
    assert precision(coarse) == PRECISIONS[-1]
    assert fine["off"] < coarse["off"] < 1e-2
    with caplog.at_level(logging.WARNING):
        view.Picture(one).html()
    assert "too large for many mailboxes" in caplog.text


def test_a_page_holds_the_scale_that_each_head_has_learned() -> None:
    model = shaken(replace(CONFIG, attention_scale="learned"))
    values = as_json(view.attention(model, [5, 6, 7, 5], [4, 12, 8]).record)
    learned = dict(model.named_parameters())
    for m in values["maps"]:
        expected = learned[f"{m['name']}.head_scale"].data
        assert len(set(expected)) == 3
        assert m["scales"] == expected.tolist()
    assert values["off"] < 2e-6
    assert {tuple(m["scales"]) for m in as_json(record())["maps"]} == {(5**-0.5,) * 3}


def test_entropies_are_those_of_the_probabilities() -> None:
    m = record().maps[-1]
    p = m.probabilities.astype(np.float64)
    expected = -(p * np.log(p)).sum(-1).mean(-1)
    np.testing.assert_allclose(m.entropies, expected, rtol=1e-6)


def test_a_page_opens_on_the_map_asked_for_and_knows_its_language() -> None:
    picture = view.Picture(record())
    opened = embedded(picture.html("decoder", 2, 3, language="ko"))
    weights = picture.record.layers("decoder")[1].probabilities[2]
    # The first query of a causal map has one key only, with weight 1: it is never the strongest.
    query, key = np.unravel_index(weights[1:].argmax(), weights[1:].shape)
    assert opened["opens"] == {
        "kind": "decoder", "layer": 1, "head": 2, "query": query + 1, "key": key
    }  # fmt: skip
    assert opened["language"] == "ko"
    assert embedded(picture.html())["language"] is None
    with pytest.raises(UsageError, match="layers are 1 to 2"):
        picture.html("decoder", 3)


def test_gradients_of_the_inputs_are_left_out_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = record()
    m = one.maps[0]
    assert m.dqueries is not None
    packed = as_json(one)["maps"][0]["dqueries"]
    assert np.abs(unpacked(packed)[0] - m.dqueries).max() < 1e-6 * np.abs(m.dqueries).max()
    monkeypatch.setattr(page_module, "LARGEST", 1)
    assert all("dqueries" not in values for values in as_json(one)["maps"])


def test_it_shows_itself_in_a_notebook() -> None:
    shown = view.attention(speaking(), "가나")._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    inside = re.search(r'srcdoc="([^"]*)"', shown)
    assert inside
    assert "&lt;script" in inside[1]
    assert "<" not in inside[1]


def unpacked(text: dict[str, Any]) -> np.ndarray:
    octets = text["bits"] // 8
    data = base64.b64decode(text["data"])
    numbers = [
        int.from_bytes(data[i : i + octets], "little", signed=True)
        for i in range(0, len(data), octets)
    ]
    shape = text["shape"]
    factors = np.array(text["factors"]).reshape(-1, *[1] * (len(shape) - 1))
    return np.array(numbers).reshape(shape) * factors


@pytest.mark.parametrize("bits", [8, 16, 24])
def test_numbers_come_back_to_half_a_step(bits: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 7)) * [[[1e-6]], [[1.0]], [[3e4]]]
    back = unpacked(as_text(x, bits))
    step = np.abs(x).max(axis=(1, 2), keepdims=True) / (2 ** (bits - 1) - 1)
    assert (np.abs(back - x) <= 0.5001 * step).all()
    np.testing.assert_allclose(rounded(x, bits), back, rtol=1e-12)


def test_nothing_but_zeros() -> None:
    assert not unpacked(as_text(np.zeros((2, 3, 5)), 24)).any()


def test_sizes_in_a_page() -> None:
    text = as_text(np.ones((8, 200, 32)), 24)
    assert len(text["data"]) == 8 * 200 * 32 * 4
    one = record()
    for each in PRECISIONS:
        maps = as_json(one, precision=each)["maps"]
        size = sum(len(m[name]["data"]) for m in maps for name in Precision._fields)
        padding = 3 * len(maps) * len(Precision._fields)
        assert each.size(one) <= size <= each.size(one) + padding


def test_the_page_of_a_small_trained_model_is_less_than_two_megabytes() -> None:
    picture = view.attention(pellucid.load("g2p-demo"), "attention", run=True)
    assert len(picture.html().encode()) < 2_000_000
