"""The pages written by hand: their code runs, what they say to do works, both languages agree."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid import load
from pellucid.training.events import Event, Validated

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = ("index", "start", "tour", "extending", "faq", "roadmap", "python", "runs")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
every_guide = pytest.mark.parametrize("name", GUIDES)


def page(name: str, language: str = "en") -> str:
    suffix = "" if language == "en" else f".{language}"
    return (DOCS / f"{name}{suffix}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[tuple[str, str]]:
    """Return (title, body) of the code blocks of one language."""
    return [(title, body) for kind, title, body in BLOCK.findall(text) if kind == language]


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("name", ["index", "start", "extending", "python", "runs"])
def test_the_code_of_a_guide_runs(
    name: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bodies = [body for title, body in blocks(page(name, language), "python") if not title]
    assert bodies
    names: dict[str, object] = {"__name__": name}
    for body in bodies:
        exec(compile(body, name, "exec"), names)


def test_one_listener_serves_every_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, float, int]] = []

    def send(numbers: dict[str, float], step: int) -> None:
        sent.extend((name, x, step) for name, x in numbers.items())

    def train(recipe: str, *, train: str, listeners: list[Callable[[Event], None]]) -> None:
        for listen in listeners:
            listen(Validated(7, 1.5, 0.25, True, 2.0, {"per": 0.5}))

    one = SimpleNamespace(add_scalar=lambda name, x, step: send({name: x}, step), log=send)
    fakes: dict[str, Any] = {
        "torch": SimpleNamespace(),
        "torch.utils": SimpleNamespace(),
        "torch.utils.tensorboard": SimpleNamespace(SummaryWriter=lambda folder: one),
        "wandb": SimpleNamespace(init=lambda project: one),
        "mlflow": SimpleNamespace(start_run=nullcontext, log_metrics=send),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr("pellucid.train", train)
    found = blocks(page("runs"), "python")
    assert [title for title, _ in found] == ["", "tensorboard", "wandb", "mlflow"]
    for _, body in found[1:]:
        sent.clear()
        exec(compile(f"{found[0][1]}\n{body}", "runs", "exec"), {})
        assert ("validated/loss", 0.25, 7) in sent
        assert ("validated/scores.per", 0.5, 7) in sent


def test_the_coverage_penalty_of_the_page_ranks_the_best_answers_again() -> None:
    (body,) = [b for _, b in blocks(page("decoding"), "python") if "def coverage" in b]
    model = load("g2p-en")
    names: dict[str, Any] = {"model": model}
    exec(compile(body.replace("안녕", "attention"), "decoding", "exec"), names)
    assert len(names["answers"]) == 4
    assert names["best"] in names["answers"]
    penalties = [names["coverage"](model, "attention", answer) for answer in names["answers"]]
    assert all(penalty < 0 for penalty in penalties)
    half = names["answers"][0]._replace(tokens=names["answers"][0].tokens[:3])
    assert names["coverage"](model, "attention", half) < penalties[0]  # letters are left out


KOREAN = r"\.ko\.(md|svg|py)"
"""The end of a file that has a Korean edition."""


def facts(text: str) -> dict[str, list[str]]:
    """Return what both languages of a page must share."""
    blocks = [body for kind, _, body in BLOCK.findall(text) if kind != "text"]
    code = [re.sub(KOREAN, r".\1", re.sub(r" *#.*", "", body)) for body in blocks]
    prose = BLOCK.sub("", text)
    links = [re.sub(KOREAN, r".\1", link) for link in re.findall(r"\]\(([^)]+)\)", prose)]
    names = re.findall(r"`([^`]+)`", " ".join(prose.split()))
    return {
        "code": code,
        "headings": re.findall(r"^(#+) ", prose, re.MULTILINE),
        "links": sorted(links),
        "names": sorted(re.sub(KOREAN, r".\1", name) for name in names),
    }


@every_guide
def test_both_languages_of_a_guide_have_the_same_parts(name: str) -> None:
    assert facts(page(name, "en")) == facts(page(name, "ko"))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Follow "Add a part" in a copy of the package; return the copy's parent."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(
        ROOT / "src" / "pellucid", root / "src" / "pellucid",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    for title, body in blocks(page("extending"), "python"):
        if title:
            (root / title).write_text(body, encoding="utf-8")
    changes = blocks(page("extending"), "diff")
    assert changes
    for title, body in changes:
        before = "".join(f"{line[1:]}\n" for line in body.splitlines() if line[0] == " ")
        after = "".join(f"{line[1:]}\n" for line in body.splitlines())
        file = root / title
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{title} has not exactly one {before!r}"
        file.write_text(text.replace(before, after), encoding="utf-8")
    return root


def python(root: Path, *arguments: str) -> str:
    """Run Python on the copy, without compiling anything, and return what it prints."""
    found = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={
            **os.environ, "PYTHONPATH": str(root / "src"), "PELLUCID_KERNELS": "off",
            "COLUMNS": "160", "PELLUCID_LANG": "en",
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def pellucid(root: Path, *arguments: str) -> str:
    return python(root, "-m", "pellucid", *arguments)


def test_the_new_activation_is_checked(extended: Path) -> None:
    (command,) = (line.split()[1:] for line in consoles("check relu_squared"))
    rows = [line for line in pellucid(extended, *command).splitlines() if "relu_squared" in line]
    assert {row.split("  ")[0].strip() for row in rows} == {
        "op relu_squared",
        "op bias_act_dropout (relu_squared)",
    }
    assert all(row.split()[-1] == "ok" for row in rows)


def test_a_wrong_backward_of_it_fails_both_rows(extended: Path) -> None:
    file = extended / "src" / "pellucid" / "ops" / "relu_squared.py"
    right = file.read_text(encoding="utf-8")
    wrong = right.replace("return 2.0 * saved.positive", "return saved.positive")
    assert wrong != right
    file.write_text(wrong, encoding="utf-8")
    rows = (
        "from pellucid.check import TOLERANCE, op_cases\n"
        "cases = [case for case in op_cases() if 'relu_squared' in case.name]\n"
        "print([max(case.errors().values()) > TOLERANCE for case in cases])"
    )
    assert python(extended, "-c", rows).strip() == "[True, True]"
    file.write_text(right, encoding="utf-8")


def test_the_new_activation_is_drawn(extended: Path) -> None:
    pellucid(extended, "plot", "activations", "--output", "activations.svg", "--lang", "en")
    assert "squared ReLU" in (extended / "activations.svg").read_text(encoding="utf-8")


def small(root: Path) -> list[str]:
    """Write a few pairs; return options with which a recipe trains on them in no time."""
    words = ("ab", "abc", "bca", "cab", "bac", "cba", "attention", "notation", "intent", "neat")
    pairs = [f"{word}\t{word[::-1]}\n" for word in words]
    (root / "pairs.tsv").write_text("source\ttarget\n" + "".join(pairs), encoding="utf-8")
    return [
        "--data.train", "pairs.tsv", "--data.held-out", "0.2", "--model.d-model", "16",
        "--model.num-attention-heads", "2", "--model.ffn-dim", "16", "--training.steps", "3",
    ]  # fmt: skip


def consoles(part: str) -> list[str]:
    """Return the commands of the guide's one console block that has this part."""
    (found,) = [body for _, body in blocks(page("extending"), "console") if part in body]
    return [line.removeprefix("$ ") for line in found.splitlines()]


def test_a_metric_of_a_file_is_monitored_and_scored(extended: Path) -> None:
    train, evaluate = (line.split()[1:] for line in consoles("--import my_metric.py"))
    options = small(extended)[2:]
    shutil.copy(extended / "pairs.tsv", extended / "my.tsv")
    said = pellucid(extended, *train, *options)
    assert "pellucid evaluate runs/g2p-small --import my_metric.py" in said
    assert "wrong digits" in pellucid(extended, *evaluate)


def test_a_rule_of_a_file_is_checked_trained_and_used(extended: Path) -> None:
    example = (ROOT / "examples" / "my_rule.py").read_text(encoding="utf-8")
    assert (extended / "my_rule.py").read_text(encoding="utf-8") == example
    check, train, generate = (line.split()[1:] for line in consoles("--import my_rule.py"))
    (row,) = [line for line in pellucid(extended, *check).splitlines() if "(near)" in line]
    assert row.split()[-1] == "ok"
    assert "trained to step 3" in pellucid(extended, *train, *small(extended))
    pellucid(extended, *generate)


def test_the_new_activation_trains(extended: Path) -> None:
    (command,) = (line.split() for line in consoles("activation-function relu_squared"))
    assert "trained to step 3" in pellucid(extended, *command[1:], *small(extended))
    config = (extended / "runs" / "squared" / "config.toml").read_text(encoding="utf-8")
    assert 'activation_function = "relu_squared"' in config
    assert importlib.util.find_spec("pellucid.ops.relu_squared") is None


def test_the_word_to_change_has_the_error_rate_of_its_model() -> None:
    card = (ROOT / "src/pellucid/trained/g2p-en/README.md").read_text(encoding="utf-8")
    rate = re.search(r"\| PER \| ([\d.]+)%", card)
    assert rate is not None
    text = (ROOT / "viewer/src/figures/text.ts").read_text(encoding="utf-8")
    stated = re.findall(r"(\d+) % of the sounds are wrong|틀리는 소리는 (\d+) %", text)
    assert ["".join(each) for each in stated] == [f"{float(rate[1]):.0f}"] * 2
