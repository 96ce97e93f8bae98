"""What models with a mistake learn: the museum is that of the stored runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from pellucid.apps.teach.exercise import learnt, read
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
    trained = [found for _, _, found in module.complete() if "error" not in found[0]]
    assert len(circles) == 3 * len(trained)
    first, last = float(circles[0].attrib["cx"]), float(circles[-1].attrib["cx"])
    assert 768 < first <= 770  # no mistake: all is right
    assert 400 <= last < 404


def test_what_exercises_say_is_that_of_the_stored_runs() -> None:
    module = script()
    assert module.LEARNT.read_text(encoding="utf-8") == module.learnt_table()
    for name, mistake, found in module.complete():
        if name and "error" not in found[0]:
            en, ko = learnt(name, mistake)
            for one in found:
                assert f"{one['right']:,}/{one['of']:,}" in en
                assert f"{one['right']:,}/{one['of']:,}" in ko
    assert learnt("relu_backward", "relu_of_gradient") == Text("", "")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_slopes_in_the_text_are_those_of_the_runs(language: Language) -> None:
    module = script()
    text = " ".join(module.page(language).read_text(encoding="utf-8").split())
    runs = {mistake: lines for _, mistake, lines in module.complete()}
    for mistake in ("row_sum_left_out", "queries_alone"):
        first, second, third = map(module.off, runs[mistake])
        joint = (
            f"{first}, {second} and {third}" if language == "en" else f"{first}, {second}, {third}"
        )
        assert joint in text
    losses = {mistake: [one["loss"] for one in runs[mistake]] for mistake in ("", "queries_alone")}
    pairs = zip(losses[""], losses["queries_alone"], strict=True)
    assert max(abs(a - b) for a, b in pairs) < 1.5e-4


def test_every_mistake_that_is_trained_first_is_known() -> None:
    module = script()
    assert all(m in read(name)["mistakes"] for name, m in module.FIRST if name)


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


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script()
    monkeypatch.setattr(module, "FILE", tmp_path / "runs.jsonl")
    monkeypatch.setattr(module, "write_tables", lambda: None)
    monkeypatch.setattr(module, "trained", lambda t, seed, say: {"right": 1, "of": 2})
    monkeypatch.setattr("sys.argv", ["silent_bugs.py", "--limit", "4"])
    module.main()
    module.main()
    lines = [json.loads(line) for line in module.FILE.read_text("utf-8").splitlines()]
    assert len({(one["exercise"], one["mistake"], one["seed"]) for one in lines}) == 8
    assert lines[3]["mistake"] == "row_sum_left_out"
    assert capsys.readouterr().out.count("\n") == 8
