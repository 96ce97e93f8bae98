"""--device on the command line: the same scores and answers, and messages where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.apps.cli.test_main import TINY, failed, pairs, pellucid
from tests.ops.libraries import ON_A_GPU

pytestmark = pytest.mark.oracle("torch")
NO_GPU = pytest.mark.skipif(ON_A_GPU["torch-cuda"](), reason="there is a GPU here")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings, pairs, and a run trained on PyTorch's tensors."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("place")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    (folder / "words.tsv").write_text(pairs(200), encoding="utf-8")
    options = ("--device", "torch:cpu", "--precision", "bfloat16", "--training.steps", "2")
    failed(pellucid("train", "tiny.toml", "--data.train", "words.tsv", *options, cwd=folder), 0)
    return folder


def test_a_model_answers_and_scores_alike_on_either(place: Path) -> None:
    shown = []
    for device in ("cpu", "torch:cpu"):
        answers = pellucid("generate", "runs/tiny", "abca", "gg", "--device", device, cwd=place)
        failed(answers, 0)
        asked = ("generate", "runs/tiny", "abca", "--json", "--device", device)
        described = json.loads(pellucid(*asked, cwd=place).stdout)
        scored = pellucid("evaluate", "runs/tiny", "--json", "--device", device, cwd=place)
        failed(scored, 0)
        shown.append((answers.stdout, described, json.loads(scored.stdout)))
    (here, one, mine), (there, other, theirs) = shown
    assert here == there
    first, second = (found["parts"][0]["answers"][0] for found in (one, other))
    assert first["tokens"] == second["tokens"]
    assert first["token_log_p"] == pytest.approx(second["token_log_p"], abs=1e-5)
    assert mine.pop("loss") == pytest.approx(theirs.pop("loss"), rel=1e-5)
    assert mine.pop("perplexity") == pytest.approx(theirs.pop("perplexity"), rel=1e-5)
    assert mine == theirs


def test_a_run_is_resumed_where_it_did_not_begin(place: Path) -> None:
    more = ("--training.steps", "4", "--accept-changes")
    done = pellucid("train", "--resume", "runs/tiny", *more, cwd=place)
    failed(done, 0)
    assert "use it" in done.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--device", "gpu"), ("--device gpu", "cuda, cuda:NUMBER or torch:DEVICE")),
        (("--device", "torch:sofa"), ("--device torch:sofa", "one of cpu")),
        (("--precision", "tf32"), ("--precision tf32", "--device cuda")),
        pytest.param(("--device", "cuda"), ("--device cuda", "or leave out"), marks=NO_GPU),
    ],
)
def test_a_device_that_is_not_there_is_named_before_anything_is_written(
    place: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    start = ("train", "tiny.toml", "--data.train", "words.tsv", "--run", "other")
    done = pellucid(*start, *arguments, cwd=place)
    failed(done, done.returncode, *words)
    assert done.returncode in (1, 2)
    assert not (place / "other").exists()
    if arguments[0] == "--device":
        failed(pellucid("generate", "runs/tiny", "x", *arguments, cwd=place), done.returncode)


def test_without_pytorch_it_says_what_to_install(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    importer = SimpleNamespace(import_module=missing)
    monkeypatch.setattr("pellucid.core.errors.importlib", importer)
    done = pellucid("evaluate", "runs/tiny", "--device", "cuda", cwd=place)
    failed(done, 2, "--device cuda needs PyTorch", "Compute Platform: CPU", "torch>=")
