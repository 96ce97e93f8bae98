"""`pellucid train --workers`: real processes, started by torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.apps.cli.main import main

pytestmark = [pytest.mark.alone, pytest.mark.oracle("torch")]  # torchrun comes with it

SETTINGS = """
[data]
train = ["pairs.tsv"]
max_tokens = 11
batch_tokens = 200
[tokenizer]
kind = "char"
[model]
model_type = "pellucid-seq2seq"
d_model = 8
num_attention_heads = 2
ffn_dim = 11
encoder_layers = 1
decoder_layers = 1
max_position_embeddings = 19
[training]
steps = 12
validate_every = 6
validate_unit = "steps"
checkpoint_every = 4
[evaluation]
metric = "error_rates"
pairs = 5
"""
# What Python imports first: the second worker kills itself in its seventh step, the first time.
KILLING = """
import os
if os.environ.get("RANK") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    from pellucid.training import trainer
    step_of = trainer.train_step
    def train_step(*arguments, **options):
        if options["step"] == 7:
            os.kill(os.getpid(), 9)
        return step_of(*arguments, **options)
    trainer.train_step = train_step
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    words = [a + b + c for a in "abcd" for b in "abcd" for c in "abcd"]
    lines = "".join(f"{word}\t{word[::-1].upper()}\n" for word in words)
    (tmp_path / "pairs.tsv").write_text(lines, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(SETTINGS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*arguments: str, first: Path | None = None) -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[3] / "src")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*([str(first)] if first else []), source]),
        "PELLUCID_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pellucid", "train", "mine.toml", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def checkpoint(run: str) -> dict[str, bytes]:
    names = ("model.safetensors", "optimizer.safetensors", "config.toml")
    return {n: (Path(run) / "checkpoints" / "step-00000012" / n).read_bytes() for n in names}


def test_a_killed_worker_is_replaced_and_the_bits_are_those_of_one_process(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sitecustomize.py").write_text(KILLING, encoding="utf-8")
    done = start("--workers", "2", "--run", "two", first=folder)
    assert done.returncode == 0, done.stderr
    assert "worker 1 of 2 died; all start again from the newest checkpoint" in done.stderr
    assert "Traceback" not in done.stderr
    assert "at most 12 steps, resuming from step 6" in done.stdout
    assert done.stdout.count("trained to step 12") == 1  # only the first worker prints
    assert main(["train", "mine.toml", "--training.parts", "8", "--run", "one"]) == 0
    assert checkpoint("two") == checkpoint("one")
    lines = [re.sub(r"[\d:.]+ ?s?$", "", line) for line in done.stdout.splitlines()[-3:]]
    alone = capsys.readouterr().out.splitlines()[-3:]
    assert [line.replace("two", "one") for line in lines[1:]] == [
        re.sub(r"[\d:.]+ ?s?$", "", line) for line in alone[1:]
    ]


def test_what_a_user_can_fix_is_said_once(folder: Path) -> None:
    (folder / "run" / "checkpoints" / "step-00000004").mkdir(parents=True)
    (folder / "run" / "config.toml").touch()
    done = start("--workers", "2", "--run", "run")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("pellucid: run: already holds a run; resume it")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "0"), "--workers must be at least 1, got 0"),
        (("--workers", "2", "--restarts", "-1"), "--restarts must be at least 0, got -1"),
        (("--workers", "2", "--timeout", "0"), "--timeout must be above 0"),
        (("--workers", "9"), "more than the 8 parts of a step; set --training.parts to 9"),
        (("--workers", "3", "--training.parts", "2"), "more than the 2 parts of a step"),
    ],
)
def test_wrong_numbers_are_refused_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert main(["train", "mine.toml", "--run", "run", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "run").exists()


def test_without_pytorch_it_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("pellucid.core.errors.importlib", SimpleNamespace(import_module=missing))
    assert main(["train", "mine.toml", "--workers", "2", "--run", "run"]) == 1
    assert "training with several workers needs PyTorch" in capsys.readouterr().err


def test_a_port_in_use_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name, value in zip(
            ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
            ("0", "2", "127.0.0.1", str(port)),
            strict=True,
        ):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PELLUCID_THREADS", "1")
        assert main(["train", "mine.toml", "--timeout", "5", "--run", "run"]) == 1
    assert f"127.0.0.1:{port} is in use by another process" in capsys.readouterr().err
