"""The page as a file: it holds the record, nothing in a text can break out, and it stays small."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.view.samples import CONFIG, shaken, speaking

from pellucid import view
from pellucid.view import page as page_module
from pellucid.view.arrays import PRECISIONS
from pellucid.view.page import as_json, page, precision_for
from pellucid.view.record import Record
from pellucid.view.tokens import Label

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
    assert embedded(page(one)) == json.loads(json.dumps(as_json(one)))


def test_no_text_breaks_out() -> None:
    one = replace(record(), title=HOSTILE, source=(Label(HOSTILE),) * 4, notes=(HOSTILE,))
    html = page(one)
    assert html.count("<script") == page(record()).count("<script")
    assert embedded(html)["title"] == HOSTILE
    assert embedded(html)["source"] == [[HOSTILE, "text"]] * 4


def test_the_page_forbids_itself_every_request() -> None:
    html = page(record())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert policy[1].startswith("default-src 'none'")
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_a_large_page_becomes_coarser_and_says_by_how_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = record()
    fine = as_json(one)
    assert precision_for(one) == PRECISIONS[0]
    assert fine["off"] < 2e-6
    monkeypatch.setattr(page_module, "LARGEST", 1)
    assert precision_for(one) == PRECISIONS[-1]
    coarse = as_json(one)
    assert fine["off"] < coarse["off"] < 1e-2
    with caplog.at_level(logging.WARNING):
        page(one)
    assert "too large for many a mailbox" in caplog.text


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


def test_it_shows_itself_in_a_notebook() -> None:
    shown = view.attention(speaking(), "가나")._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    inside = re.search(r'srcdoc="([^"]*)"', shown)
    assert inside
    assert "&lt;script" in inside[1]
    assert "<" not in inside[1]
