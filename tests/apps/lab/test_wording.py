"""Reports in Korean: every text has its Korean, and the values stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
from tests.apps.lab.small import Here, write_study
from tests.apps.untranslated import list_english

from pellucid.apps import lab
from pellucid.apps.cli.main import main
from pellucid.apps.lab.findings import gather
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import all_metrics
from pellucid.apps.lab.report import write_report
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.statistics import FAILED, LACKING, NOT_DONE
from pellucid.apps.lab.study_file import SHIPPED, load_study, read_study, study_names
from pellucid.apps.lab.wording import captions, korean
from pellucid.system.language import speaking

HERE = Path(lab.__file__).parent
HANGUL = re.compile("[가-힣]")


def texts() -> Iterator[str]:
    """Return every text that is asked for by itself, in the code and in the templates."""
    for path in sorted([*HERE.rglob("*.py"), *SHIPPED.glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tr":
                text = node.args[0]
                for one in (text.body, text.orelse) if isinstance(text, ast.IfExp) else (text,):
                    if isinstance(one, ast.Constant):
                        yield one.value
    yield from (f"{better} is better" for better in ("lower", "higher"))
    yield from (f". Expected: {which}" for which in ("lower", "higher"))
    yield from (FAILED, LACKING, NOT_DONE)
    for path in HERE.glob("templates/*.md"):
        yield from re.findall(r'(?<![a-z])tr\("(.*?)"', path.read_text(encoding="utf-8"))
        yield from re.findall(r'else "(\..*?)"\) }}', path.read_text(encoding="utf-8"))
        for heads in re.findall(r"head\(\[(.*?)\]\)", path.read_text(encoding="utf-8")):
            yield from set(re.findall(r'"(.*?)"', heads)) - {"p", "Holm", "d_z"}
    yield from (measure.title for measure in MEASURES.values())
    yield from {metric.unit for metric in all_metrics().values() if metric.unit}
    for study in map(load_study, study_names()):
        yield study.plan.question
        yield from (
            one.about for one in study.changes.values() if re.search("[a-z]{3}[^(]", one.about)
        )
        yield from (one.claim for one in (*study.plan.primary, *study.plan.bounds) if one.claim)


def test_every_text_has_its_korean() -> None:
    list_english(sorted({text for text in texts() if text not in korean()}), "apps/lab/korean.toml")


def test_both_languages_fill_in_the_same_values() -> None:
    def names(text: str) -> set[str | None]:
        return {name for _, name, _, _ in Formatter().parse(text)} - {None}

    with speaking("ko"):
        of_pictures = captions()
    assert of_pictures.keys() == captions().keys()
    pairs = [(english, text) for english, text in korean().items() if isinstance(text, str)]
    for english, text in [
        *pairs,
        *((captions()[name], of_pictures[name]) for name in of_pictures),
    ]:
        assert names(english) == names(text), english
        assert HANGUL.search(text) or not re.search("[a-z]{3}", re.sub("{.*?}", "", english))


def test_the_report_in_korean_says_the_same_in_korean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pellucid.apps.lab.plots.to_svg", lambda figure: "<svg/>")
    path, file = write_study(tmp_path), tmp_path / "results.jsonl"
    study = read_study(path)
    run_study(study.trials(), file, tmp_path / "runs", executor=Here())
    write_report(gather(study, read_results(file)), tmp_path / "en")
    arguments = ["lab", "report", str(path), "--results", str(file), "--output"]
    assert main(["--lang", "ko", *arguments, str(tmp_path / "ko")]) == 0
    assert "report.md 저장" in capsys.readouterr().out
    english, in_korean = (
        (tmp_path / name / "report.md").read_text(encoding="utf-8") for name in ("en", "ko")
    )
    assert in_korean.startswith("# Is it the scale?\n\n계획한 실행 8개 중 8개 완료.")
    prose = in_korean.partition("```")[0]
    headings = [line for line in prose.splitlines() if line.startswith("##")]
    assert len(headings) > 5
    assert all(HANGUL.search(heading) for heading in headings)
    assert all(HANGUL.search(line) for line in prose.splitlines() if line.startswith(("*", "- ")))

    def numbers(text: str) -> list[str]:
        return sorted(re.findall(r"[−+]?\d+\.\d\d+", text))

    assert numbers(in_korean) == numbers(english)
    assert '<html lang="ko">' in (tmp_path / "ko" / "report.html").read_text(encoding="utf-8")
