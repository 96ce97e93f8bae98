"""The READMEs and docs are true: code runs, commands and paths exist, both languages agree."""

from __future__ import annotations

import doctest
import importlib.util
import re
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest
from tests.small import write_model

import pellucid
from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.main import main
from pellucid.apps.cli.recipes import MINUTES
from pellucid.training.config import load_recipe, recipe_names

ROOT = Path(__file__).parents[1]
ENGLISH, KOREAN = ROOT / "README.md", ROOT / "README.ko.md"
ARTICLES = ROOT / "docs" / "articles.md", ROOT / "docs" / "articles.ko.md"
PREFIX = ROOT / "docs" / "prefix.md", ROOT / "docs" / "prefix.ko.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
GUIDES = [ROOT / "CONTRIBUTING.md", *DOCS]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"^\s*(?:\$ )?((?:pellucid|make|bash|python|echo|pip|git) .*?)(?:\s+#.*)?$", re.MULTILINE
)


def blocks(path: Path, language: str) -> list[str]:
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [body for name, body in found if name == language]


def results_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "scripts" / "results.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [ENGLISH, KOREAN], ids=["en", "ko"])
def test_readme_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, train = pellucid.load(write_model(tmp_path / "model")), signature(pellucid.train)
    monkeypatch.setattr(pellucid, "train", lambda *a, **b: train.bind(*a, **b) and model)
    assert len(blocks(path, "python")) == 2
    names: dict[str, object] = {}
    for body in blocks(path, "python"):
        exec(compile(body, path.name, "exec"), names)


def test_every_number_of_the_corrections_is_computed() -> None:
    page = str(ARTICLES[0])
    found = doctest.testfile(page, False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (found.failed, found.attempted > 50) == (0, True)


def test_every_number_on_prefixes_is_computed() -> None:
    found = doctest.testfile(str(PREFIX[0]), False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (found.failed, found.attempted > 20) == (0, True)


@pytest.mark.parametrize("pages", [ARTICLES, PREFIX])
def test_both_languages_of_what_is_computed_have_the_same_code(pages: tuple[Path, Path]) -> None:
    english, korean = (blocks(path, "python") for path in pages)
    assert english == korean
    assert headings(pages[0]) == headings(pages[1])


@pytest.mark.parametrize("path", [ENGLISH, KOREAN], ids=["en", "ko"])
def test_every_command_names_a_verb_or_a_make_target(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands(path):
        words = command.split()
        if words[0] == "pellucid":
            assert words[1] in COMMANDS, command
        if words[0] == "make":
            assert words[1] in targets, command


def test_every_option_of_a_command_exists(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, set[str]] = {}
    for path in (ENGLISH, *DOCS):
        for command in commands(path):
            words = command.removeprefix(".venv/bin/").split()
            if words[0] == "pellucid" and words[1] in COMMANDS:
                verb = " ".join(words[1:3] if words[1] == "lab" else words[1:2])
                given.setdefault(verb, set()).update(re.findall(r" (--[a-z.-]+)", command))
    assert "--to" in given["export"]
    for verb, options in given.items():
        if options:
            main([*verb.split(), *(["g2p-demo"] if verb == "train" else []), "--help"])
            known = set(re.findall(r"--[a-z.-]+", capsys.readouterr().out))
            assert options <= known | {"--help", "--import"}, verb


def commands(path: Path) -> list[str]:
    return [command for body in blocks(path, "console") for command in COMMAND.findall(body)]


def numbers(path: Path) -> list[str]:
    """Every figure outside code, in order: tables, percentages, times."""
    prose = BLOCK.sub("", path.read_text(encoding="utf-8"))
    return re.findall(r"\d[\d,.]*\d|\d", prose)


def test_the_two_languages_have_the_same_commands_and_code() -> None:
    assert commands(ENGLISH)
    assert commands(ENGLISH) == commands(KOREAN)
    strip = re.compile(r"\s*#.*")
    for ours, theirs in zip(blocks(ENGLISH, "python"), blocks(KOREAN, "python"), strict=True):
        assert strip.sub("", ours) == strip.sub("", theirs)


def test_the_two_languages_have_the_same_numbers() -> None:
    assert sorted(numbers(ENGLISH)) == sorted(numbers(KOREAN))


def headings(path: Path) -> list[str]:
    """The level of every heading outside code, in order."""
    prose = BLOCK.sub("", path.read_text(encoding="utf-8"))
    return re.findall(r"^(#+) ", prose, re.MULTILINE)


def test_the_two_languages_have_the_same_sections() -> None:
    assert headings(ENGLISH) == headings(KOREAN)


@pytest.mark.parametrize("page", results_script().PAGES, ids=lambda page: page[0].name)
def test_generated_tables_are_up_to_date(page: tuple[Path, str, list[str]]) -> None:
    path, language, names = page
    text = path.read_text(encoding="utf-8")
    assert results_script().render(text, language, names) == text, "run: python scripts/results.py"


RANGES = (
    (results_script().CURVES, "sqrt_d_k", None, "train_loss"),
    (results_script().CURVES, "d_k", None, "train_loss"),
    (results_script().CURVES, "positions", None, "train_loss"),
    (results_script().CURVES, "d_k", "sqrt_d_k", "train_loss"),
    (results_script().CURVES, "positions_and_d_k", "positions", "train_loss"),
    ("scaling-held-out", "d_k", "sqrt_d_k", "best_valid_loss"),
    ("scaling-held-out", "d_k", "sqrt_d_k", "test_loss"),
    ("norm-place", "pre", "post", "best_valid_loss"),
    ("norm-place", "post_cold", "post", "best_valid_loss"),
    ("norm-place", "pre_cold", "pre", "best_valid_loss"),
    ("activations", "gelu", "relu", "best_valid_loss"),
)
"""Study, variant, the variant it is compared with (or None for its values), metric."""


@pytest.mark.parametrize(("study", "change", "against", "metric"), RANGES)
def test_ranges_in_the_answers_are_those_of_the_results(
    study: str, change: str, against: str | None, metric: str
) -> None:
    script = results_script()
    values: dict[str | None, dict[int, float]] = {}
    for line in script.read_results(script.STUDIES / f"{study}.jsonl"):
        values.setdefault(line["change"], {})[line["seed"]] = line["metrics"][metric]
    base = values.get(against, dict.fromkeys(values[change], 0.0))
    found = sorted(abs(value - base[seed]) for seed, value in values[change].items())
    text = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())
    prose = re.sub(r"<!-- study .*?<!-- end study [\w-]+ -->", "", text)
    assert f"{found[0]:.3f} to {found[-1]:.3f}" in prose


@pytest.mark.parametrize("path", [ENGLISH, KOREAN], ids=["en", "ko"])
def test_the_tree_lists_every_package_and_nothing_else(path: Path) -> None:
    (tree,) = [body for body in blocks(path, "") if body.startswith("src/pellucid/")]
    listed = [line.split()[0] for line in tree.splitlines() if line.startswith("  ")]
    folders = (ROOT / "src" / "pellucid").iterdir()
    packages = [
        f.name for f in folders if f.is_dir() and any(f.glob("*.py")) | any(f.glob("*.toml"))
    ]
    assert sorted(listed) == sorted(packages)


@pytest.mark.parametrize("path", [ENGLISH, KOREAN, *GUIDES], ids=lambda path: path.name)
def test_source_files_named_in_prose_exist(path: Path) -> None:
    prose = BLOCK.sub("", path.read_text(encoding="utf-8"))
    for name in re.findall(r"`([a-z0-9_]+/[a-z0-9_/]+\.py)`", prose):
        assert (ROOT / name).exists() or (ROOT / "src" / "pellucid" / name).exists(), name


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *DOCS], ids=lambda path: path.name)
def test_links_lead_to_files_of_the_repository(path: Path) -> None:
    """Who reads the pages where the code is has no pages that the site's build makes."""
    prose = BLOCK.sub("", path.read_text(encoding="utf-8"))
    for target in LINK.findall(prose):
        assert (path.parent / target).exists(), target


LINK = re.compile(r"(?:\]\(|(?:src|srcset|href)=\")(?!https?:|#)([^)#\s\"]+)")


def test_the_list_of_recipes_has_the_minutes_of_the_results() -> None:
    rows = results_script().read_results()
    measured = {row["recipe"]: int(f"{row['minutes']:.0f}") for row in rows}
    assert {name: measured[name] for name in recipe_names() if name in measured} == MINUTES


@pytest.mark.parametrize("path", [ENGLISH, KOREAN, *DOCS], ids=lambda path: path.name)
def test_minutes_of_a_recipe_are_those_of_the_list(path: Path) -> None:
    for part in re.split(r"\n\s*\n|\n(?=pellucid |\|)", path.read_text(encoding="utf-8")):
        named = set(re.findall(r"[a-z0-9-]+", part)) & set(recipe_names())
        right = {f"{MINUTES.get(n, load_recipe(n).training.minutes or 0):g}" for n in named}
        found = re.findall(r"(\d[\d.]*)(?: minutes|분(?!의))", part)
        assert not named or set(found) <= right, part


def test_descriptions_of_recipes_leave_minutes_to_the_list() -> None:
    for name in recipe_names():
        assert not re.search("minute|hour", load_recipe(name).description), name


def test_a_measurement_is_its_median_with_quartiles_and_says_where() -> None:
    script = results_script()
    row = {"benchmark": "train_step", "length": 12, "ratio": [1.4, 1.5, 1.7]}
    assert script.measured_of(row)[0][1] == "1.50 (1.40–1.70)"
    ((name, _),) = script.measured_of({**row, "mkl": "as on Intel"})
    assert name == "1. a step, length 12, MKL as on Intel: times PyTorch's speed"
    table = script.measured_table([row], [])
    assert table.splitlines()[-1].endswith("times PyTorch's speed | 1.50 (1.40–1.70) |")


def test_the_bound_of_a_step_is_its_products_at_the_best_rate() -> None:
    script = results_script()
    row = {
        "benchmark": "train_step", "length": 50, "pellucid_ms": [9.0, 10.0, 11.0],
        "torch_ms": [19.0, 20.0, 22.0], "ratio": [1.9, 2.0, 2.1], "utilisation_of_own_product": 0.5,
        "sgemm_gflops": 30.0, "own_product_gflops": 80.0, "torch_product_gflops": 50.0,
    }  # fmt: skip
    assert script.bound_ms(row) == 5.0
    assert script.bound_ms({**row, "multiply_add_gflops": 100.0}) == 4.0
    rows = [{**row, "length": n, "mkl": m} for n in (50, 12) for m in (None, *script.MKL)]
    *_, ours, theirs, bound, times = script.step_table(rows, "en").splitlines()
    assert ours == "| Pellucid |" + " 10; 10 |" * 5
    assert theirs == "| PyTorch |" + " 20; 20 |" * 5
    assert bound == "| the machine's bound |" + " 5; 5 |" * 5
    assert times == "| times PyTorch's speed |" + " 2.00; 2.00 |" * 5


def test_memory_of_attention_is_what_each_further_thousand_tokens_takes() -> None:
    time = {"ratio": [2.0]}
    row = {
        "benchmark": "memory", "step_ratio": 2.5, "attention_8192": time,
        "attention_8192_causal": time, "attention_peak_mb_by_length": {"1024": 177, "16384": 327},
    }  # fmt: skip
    found = results_script().measured_of(row)[-1]
    assert found == ("4. its memory, 1,024 to 16,384 tokens", "10.0 MB per 1,024")
