"""Every example runs and computes what it prints; every notebook is made from its script."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lesson
from pellucid.apps.cli.recipes import MINUTES
from pellucid.apps.teach.exercise import EXERCISES, solution

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("article_*.py"))


def notebooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_article_000(printed: Callable[[str], str], folder: Path) -> None:
    text = printed("article_000")
    found = re.findall(r"by hand (\S+) +differences (\S+)", text)
    assert len(found) == 8
    for by_hand, numeric in found:
        assert float(by_hand) == pytest.approx(float(numeric), rel=1e-5, abs=1e-8)
    assert "transposed back and joined = Q: True" in text
    pattern = (
        r"^(\w+) norm, over .* by (\d+)%, (\d+)% among others,\n +by (\d+)%, (\d+)% with padding"
    )
    moved = {name: [int(n) for n in ns] for name, *ns in re.findall(pattern, text, re.MULTILINE)}
    assert min(moved["batch"]) > 20  # two seeds, among neighbours and with padding
    assert moved["layer"] == [0, 0, 0, 0]
    assert moved["group"][:2] == [0, 0]
    assert min(moved["group"][2:]) > 20
    pattern = r"^in a model, seed \d: W\(1 - W\) is (\d+)% to \d+% off, .* part \d+% to (\d+)%"
    diagonal = [(int(least), int(most)) for least, most in re.findall(pattern, text, re.MULTILINE)]
    assert len(diagonal) == 2
    assert all(most < 56 < least for least, most in diagonal)  # 56: at random
    assert text.count("dA is the same: True") == 3
    spread = re.findall(r"^(no norm|layer norm) +input × (\d): .* (\d\.\d\d)$", text, re.MULTILINE)
    ends = {(name.strip(), size): float(last) for name, size, last in spread}
    assert ends["no norm", "3"] == pytest.approx(3 * ends["no norm", "1"], abs=0.03)
    assert ends["layer norm", "3"] == ends["layer norm", "1"]
    assert "minimum of GELU: x = -0.7518, y = -0.1700" in text
    assert re.search(r"^sqrt_d_k +0\.5 to 0\.63 +4\.17 to 4\.86 +0\.346$", text, re.MULTILINE)
    assert re.search(r"^d_k +0\.015 to 0\.019 +0\.956 to 1\.11 +0\.269$", text, re.MULTILINE)
    losses = dict(re.findall(r"^(relu|silu|gelu) +(1\.\d{3})", text, re.MULTILINE))
    assert losses["gelu"] < losses["relu"] < losses["silu"]
    assert {"softmax.png", "activations.png", "variance.png"} <= {p.name for p in folder.iterdir()}


def test_article_001(printed: Callable[[str], str], folder: Path) -> None:
    text = printed("article_001")
    derived = re.findall(
        r"^(recurrent|lstm) dx: by hand (\S+), differences (\S+)$", text, re.MULTILINE
    )
    assert [name for name, _, _ in derived] == ["recurrent", "lstm"]
    for _, by_hand, numeric in derived:
        assert float(by_hand) == pytest.approx(float(numeric), abs=1e-6)
    size = r"(\de[-+]\d\d)"
    rows = re.findall(rf"^(\S.*?) +{r' +'.join([size] * 6)} *$", text, re.MULTILINE)
    at = {name: [float(n) for n in found] for name, *found in rows}
    assert len(at) == 8
    for seed in (0, 3):  # each at a distance of 10, 100 and 200
        for name in ("recurrent: inputs × 1, W_h normal", "LSTM: forget bias 0"):
            assert at[name][seed + 1] < 1e-15
        assert at["recurrent: × 0.03, orthogonal"][seed + 1] > at["attention: inputs × 1"][seed + 1]
        assert at["recurrent: × 0.1, normal × 1.5"][seed + 2] > 1
        assert 0.1 < at["LSTM: forget bias 3"][seed + 2] / at["LSTM: forget bias 3"][seed] < 10
        for name in ("attention: inputs × 1", "attention: inputs × 0.03"):
            assert 0.1 < at[name][seed + 2] / at[name][seed] < 10
    rows = re.findall(rf"^(\S.*\)) +f × (\S+) +{r' +'.join([size] * 4)} *$", text, re.MULTILINE)
    arrives = {(way, float(size)): [float(n) for n in found] for way, size, *found in rows}
    for seed in (1, 3):  # after 24 layers
        assert arrives["f(x)", 0.5][seed] < 1e-4 < 0.1 < arrives["f(x)", 1.0][seed] < 10
        assert arrives["f(x)", 2.0][seed] > 1e4
        assert min(arrives["x + f(x)", s][seed] for s in (0.5, 1.0, 2.0)) > 1
        assert arrives["x + f(x)", 2.0][seed] > 1e4
        assert all(0.1 < arrives["LayerNorm(x + f(x))", s][seed] < 10 for s in (0.5, 1.0, 2.0))
    marks = re.findall(
        r"^(copy|reverse|sort|brackets) +\d+% +((?:0\.\d\d +){4})0\.1\d$", text, re.MULTILINE
    )
    assert [task for task, _ in marks] == ["copy", "reverse", "sort", "brackets"]
    assert "hard lookup returns www.youtube.com/my_dog_is_happy" in text
    assert "P[0]·P[5] = 23.503971\nP[20]·P[25] = 23.503971" in text
    assert {"scores-encoder.png", "scores-cross.png"} <= {path.name for path in folder.iterdir()}


def test_article_002(printed: Callable[[str], str]) -> None:
    text = printed("article_002")
    for name in ("model", "layer"):
        (apart,) = re.findall(rf"by hand = {name}: +(\S+)", text)
        assert float(apart) < 1e-5
    assert float(re.findall(r"by hand = decoder layer: +(\S+)", text)[0]) < 1e-5
    assert "is_causal=True: positions 0 to 2 move by 0.00" in text
    assert "is_causal=False: positions 0 to 2 move by 0.00" not in text
    assert "stack: equal at first True | shared False" in text
    assert "Transformer: equal at first False | shared False" in text
    assert text.count("queries over 4 keys") == 7


def test_article_003(printed: Callable[[str], str]) -> None:
    text = printed("article_003")
    assert "sqrt_d_k (5 runs)" in text
    assert text.count("article outside") == 2
    assert "softmax(x + 1e10) = [0.09  0.245 0.665]" in text
    assert "softmax(x + 1e10, float32) = [0.333 0.333 0.333]" in text
    assert len(re.findall(r"^0\.75 .* lowest$", text, re.MULTILINE)) == 3
    assert text.count("difference (0 = additive)") == 3
    assert "difference (0 = additive):     [ 0.008  0.014 -0.007]" in text
    assert len(re.findall(r"^(?:packed|separate) +\w+ +\d+\.\d{3}$", text, re.MULTILINE)) == 4
    ends = re.findall(r"^positions_and_d_k +(\w+) +q·k \S+ to (\S+); scaled", text, re.MULTILINE)
    assert [(moment, float(most) < 2) for moment, most in ends] == [("start", True), ("end", False)]
    assert "q·(2q)" in text


def test_article_004(printed: Callable[[str], str]) -> None:
    text = printed("article_004")
    assert "Output shape: (2, 4, 100) (article: (2, 4, 100))" in text
    assert "weight on keys beyond valid_lens: 0.0 0.0" in text
    assert "position-wise: True" in text
    assert len(re.findall(r"loss \d+\.\d{3} nats a token", text)) == 6
    assert len(re.findall(r"^(?:base|heads_|before)\S* +\d +1\.\d{3}", text, re.MULTILINE)) == 10


@pytest.mark.parametrize("name", lesson.pictures.PICTURES)
def test_an_example_without_matplotlib_says_so(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.colors", raising=False)
    monkeypatch.setattr("sys.argv", ["article.py", "--output", str(tmp_path)])
    lesson.Lesson("About").show(name, lesson.pictures.PICTURES[name])
    assert "no picture: pictures need matplotlib" in capsys.readouterr().out
    lesson.Lesson("About", "ko").show(name, lesson.pictures.PICTURES[name])
    assert "그림 없음: 그림에는 matplotlib이 필요한데" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_is_up_to_date(script: Path) -> None:
    made = notebooks().bare(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert made == json.loads(notebooks().written(script)), "run: python scripts/notebooks.py"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_stores_what_its_cells_print(script: Path) -> None:
    stored = notebooks().outputs_of(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = [
        code for code in stored if "SOURCE =" not in code and re.search(r"^print\(", code, re.M)
    ]
    assert code
    assert all(stored[each] for each in code), "run: python scripts/notebooks.py --run"
    for outputs in stored.values():
        printed = "".join(line for one in outputs for line in one.get("text", ()))
        drawn = [one for one in outputs if "image/png" in one.get("data", {})]
        assert len(drawn) == len(re.findall(r"^(?:picture|그림): ", printed, re.MULTILINE))


@pytest.mark.parametrize("name", ["article_000.ipynb", "exercises.ko.ipynb"])
def test_a_notebook_needs_no_file_of_the_checkout_beside_it(name: str, tmp_path: Path) -> None:
    made = json.loads((ROOT / "examples" / name).read_text(encoding="utf-8"))
    first = "".join(next(cell for cell in made["cells"] if cell["cell_type"] == "code")["source"])
    code = f"{first}\nimport lesson, transformer"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    inside = packed["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for file in ("lesson.py", "runs.json", "transformer.py"):
        assert inside[f"examples/{file}"] == f"pellucid/apps/teach/course/{file}"


@pytest.mark.parametrize("end", ["", ".ko"])
@pytest.mark.parametrize(("number", "study"), [("000", "activations"), ("004", "heads-and-ffns")])
def test_the_notebook_shows_every_stored_run(
    number: str, study: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "examples" / f"article_{number}{end}.ipynb").read_text(encoding="utf-8")
    outputs = [one for each in notebooks().outputs_of(text).values() for one in each]
    lines = [line.split() for one in outputs for line in one.get("text", ())]
    losses: dict[str, list[float]] = {}
    for run in lesson.stored_runs(study):
        losses.setdefault(run["change"], []).append(run["metrics"]["best_valid_loss"])
    for change, found in losses.items():
        expected = [f"{loss:.3f}" for loss in sorted(found)]
        assert any(line[:1] == [change] and line[-len(expected) :] == expected for line in lines)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_holds_the_scripts_code(script: Path) -> None:
    made = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids)
    code = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    together = ast.unparse(ast.parse("\n".join(code[1:])))  # the first says how to install
    assert together == ast.unparse(ast.parse(script.read_text(encoding="utf-8")))
    ast.parse(code[0])


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_notebook_of_the_exercises_checks_what_is_written(
    language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_LANG", language)
    path = ROOT / "examples" / notebooks().EXERCISE_FILES[language]
    made = json.loads(path.read_text(encoding="utf-8"))
    assert made == notebooks().notebook(notebooks().exercises(language), language)
    code = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    scope: dict[str, Any] = {}
    for cell in code[1:]:  # the first says how to install
        exec(cell, scope)
    empty = {"en": "Write it here", "ko": "여기에 쓰세요"}[language]
    assert capsys.readouterr().out == f"{empty}\n" * len(EXERCISES)
    said = {"en": ("right", "row's sum"), "ko": ("맞았습니다", "행의 합을 빠뜨")}[language]
    for change, expected in zip(({}, {"(dp - row)": "(1 - p) * dp"}), said, strict=True):
        written = solution("softmax_backward", change)
        written.__name__ = "softmax_backward"
        scope["check"](written)
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(("end", "time"), [("", "takes {} minutes"), (".ko", "{}분이 걸리")])
def test_article_004_gives_the_measured_time_of_its_translation_model(end: str, time: str) -> None:
    script = (ROOT / "examples" / f"article_004{end}.py").read_text(encoding="utf-8")
    assert "pellucid train multi30k-de-en-small" in script
    assert time.format(MINUTES["multi30k-de-en-small"]) in script


def test_there_is_a_script_for_every_article_in_both_languages() -> None:
    stems = [path.stem for path in SCRIPTS]
    assert stems == [f"article_{n:03}{end}" for n in range(5) for end in (".ko", "")]


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("seed", [0, 1])
def test_the_group_norm_of_the_articles_page_is_torchs(seed: int) -> None:
    import torch

    page = (ROOT / "docs" / "articles.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^>>> (def group_norm.*(?:\n[.]{3} .*)+)", page, re.MULTILINE)
    scope: dict[str, Any] = {"np": np}
    exec(lines.replace("\n... ", "\n"), scope)
    x = np.random.default_rng(seed).standard_normal((3, 5, 12))
    theirs = torch.nn.functional.group_norm(torch.from_numpy(x).transpose(1, 2), 3).transpose(1, 2)
    np.testing.assert_allclose(scope["group_norm"](x, 3), theirs.numpy(), rtol=1e-9, atol=1e-12)
