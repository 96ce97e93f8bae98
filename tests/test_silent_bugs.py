"""What models with a mistake learn: the museum is that of the stored runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.apps.teach.exercise import EXERCISES, learnt, read
from pellucid.system.language import Language, Text

ROOT = Path(__file__).parents[1]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silent", ROOT / "scripts" / "silent_bugs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_table_is_that_of_the_stored_runs(language: Language) -> None:
    module = script()
    page = module.page(language).read_text(encoding="utf-8")
    shown = page.partition(module.START)[2].partition(module.END)[0].strip()
    assert shown == module.table(language).strip()
    assert shown.count("\n") >= 9
    assert module.page(language, ".svg").read_text(encoding="utf-8") == module.picture(language)


def test_the_picture_has_a_dot_for_each_run() -> None:
    module = script()
    root = ElementTree.fromstring(module.picture("en"))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    trained = [found for _, _, found in module.tried() if "error" not in found[0]]
    assert len(circles) == sum(map(len, trained))
    first, last = float(circles[0].attrib["cx"]), float(circles[-1].attrib["cx"])
    assert 768 < first <= 770  # no mistake: all is right
    assert 400 <= last < 404


def test_what_exercises_say_is_that_of_the_stored_runs() -> None:
    module = script()
    assert module.LEARNT.read_text(encoding="utf-8") == module.learnt_table()
    for name, mistake, found in module.tried():
        if mistake and "error" not in found[0]:
            en, ko = learnt(name, mistake)
            assert en.count("/") == ko.count("/") == 2 * len(found)  # as many without a mistake
            for one in found:
                assert f"{one['right']:,}/{one['of']:,}" in en
                assert f"{one['right']:,}/{one['of']:,}" in ko
    assert learnt("relu_backward", "relu_of_gradient") == Text("", "")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_slopes_in_the_text_are_those_of_the_runs(language: Language) -> None:
    module = script()
    text = " ".join(module.page(language).read_text(encoding="utf-8").split())
    runs = {(name, mistake): lines for name, mistake, lines in module.tried()}
    dropped = "encoder_layer_backward", "queries_alone"
    for mistake in (("softmax_backward", "row_sum_left_out"), dropped):
        first, second, third = map(module.off, runs[mistake])
        joint = (
            f"{first}, {second} and {third}" if language == "en" else f"{first}, {second}, {third}"
        )
        assert joint in text
    losses = [[one["loss"] for one in runs[mistake]] for mistake in (("", ""), dropped)]
    pairs = zip(*losses, strict=True)
    assert max(abs(a - b) for a, b in pairs) < 1.5e-4


def test_every_mistake_that_is_trained_first_is_known() -> None:
    module = script()
    assert all(m in read(name)["mistakes"] for name, m in module.FIRST if m)
    every = [each for each in module.mistakes() if each[1]]
    assert len(every) == len({*every}) == sum(len(read(name)["mistakes"]) for name in EXERCISES)


def test_a_plausible_slope_learns_nothing_and_a_wrong_one_learns_all() -> None:
    runs = [
        (one["mistake"], one["right"] / one["of"], one["by_hand"] / one["by_difference"])
        for one in script().stored()
        if "error" not in one
    ]
    assert all(right > 0.99 for mistake, right, _ in runs if mistake == "")
    assert all(right < 0.01 for mistake, right, _ in runs if mistake == "row_sum_left_out")
    for mistake, right, slope in runs:
        if mistake == "queries_alone":
            assert right > 0.99
            assert abs(slope - 1) > 0.1


def test_what_cannot_be_trained_says_why() -> None:
    module = script()
    assert module.stops("", "") == ""
    assert module.stops("relu_backward", "everything") == ""
    assert module.stops("residual_backward", "f_missing") == ""  # what it leaves out gets zeros
    assert module.stops("attention_dq_dk", "transpose_of_da") == "ValueError"
    assert module.stops("linear_backward", "db_not_summed") == "ValueError"  # Adam would refuse it
    assert module.stops("causal_weights", "own_key") == "nan"


UNFOUND = {
    ("causal_weights", "mask_missing"), ("causal_weights", "finite"),
    ("causal_weights", "past_hidden"), ("layer_norm_backward", "gamma_missing"),
    ("layer_norm_backward", "gamma_last"), ("layer_norm", "eps_missing"),
    ("layer_norm", "eps_outside"), ("gelu_backward", "exact"),
}  # fmt: skip
"""Mistakes that a difference does not find in a new model."""


def test_a_difference_finds_all_but_eight() -> None:
    module = script()
    slopes = json.loads(module.SLOPES.read_text(encoding="utf-8"))
    errors = {(name, m): each for name, of in slopes.items() for m, each in of.items()}
    stopped = {(one["exercise"], one["mistake"]) for one in module.stored() if "error" in one}
    assert errors.keys() == {each for each in module.mistakes() if each[1]} - stopped
    assert {each for each, error in errors.items() if max(error) < 1e-3} == UNFOUND
    for language in ("en", "ko"):
        text = " ".join(module.page(language).read_text(encoding="utf-8").split())
        assert f"{len(errors)} that" in text or f"{len(errors)}가지" in text
        assert f"{len(errors) - len(UNFOUND)} move" in text or f"{len(errors) - 8}가지는" in text
    for each in (("gelu_backward", "exact"), ("softmax_backward", "row_missing")):
        again = module.errors_of_slope(module.model(*each))
        assert again == pytest.approx(errors[each], rel=0.3)


@pytest.mark.parametrize("mistake", ["gamma_missing", "gamma_last"])
def test_random_parameters_show_a_missing_gamma(mistake: str) -> None:
    module = script()
    t = module.model("layer_norm_backward", mistake)
    assert max(module.errors_of_slope(t)) < 1e-6
    plain = t.initial

    def drawn(random: np.random.Generator, dtype: Any) -> Any:
        p = plain(random, dtype)
        for w in t.arrays(p):
            w += 0.3 * random.standard_normal(w.shape)
        return p

    t.initial = drawn
    assert min(module.errors_of_slope(t)) > 1e-3


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script()
    monkeypatch.setattr(module, "FILE", tmp_path / "runs.jsonl")
    monkeypatch.setattr(module, "write_tables", lambda: None)
    found = {"right": 1, "of": 2, "loss": 0.5}
    monkeypatch.setattr(module, "trained", lambda t, seed, say: dict(found))
    stop = ("softmax_backward", "row_missing")
    monkeypatch.setattr(module, "stops", lambda *each: "ValueError" if each == stop else "")
    monkeypatch.setattr("sys.argv", ["silent_bugs.py", "--limit", "4"])
    module.main()
    module.main()
    lines = [json.loads(line) for line in module.FILE.read_text("utf-8").splitlines()]
    assert lines[0] == {"exercise": stop[0], "mistake": stop[1], "error": "ValueError"}
    tried = [(one["exercise"], one["mistake"]) for one in lines]
    assert len({*tried}) == len(tried) == 9  # one seed of each first, none of what stops
    assert tried[4] == module.FIRST[3]
    assert {one["seed"] for one in lines[1:]} == {0}
    assert capsys.readouterr().out.count("\n") == 9
