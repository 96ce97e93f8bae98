"""The command as a user meets it: messages, exit codes, pipes."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import pellucid as pellucid_package
from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.generate import CHUNK, windows
from pellucid.apps.cli.main import Warnings, describe, main
from pellucid.apps.serve.models import load_models
from pellucid.core.errors import UserError
from pellucid.tasks.metrics import METRICS
from pellucid.training.events import TIME_FIELDS

Done = subprocess.CompletedProcess[str]
COMPILES = b"pellucid: compiling kernels that this command is the first to need; they are kept\n"

TINY = """
description = "Letters to the same letters in capitals"

[tokenizer]
kind = "char"

[model]
d_model = 12
num_attention_heads = 3
encoder_layers = 1
decoder_layers = 1
ffn_dim = 17
max_position_embeddings = 19

[data]
max_tokens = 17
batch_tokens = 256

[training]
steps = 3
validate_unit = "steps"
validate_every = 2

[evaluation]
metric = "error_rates"
"""


ENDLESS = r"pellucid: answers cut at the longest length, before their end: \d; .*"
"""The warning of an answer that does not end, which tiny models give."""


@contextmanager
def warnings_printed() -> Iterator[None]:
    """Print what is logged, as the command line does where nobody else listens."""
    printed = Warnings()
    logging.getLogger().addHandler(printed)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(printed)


def pellucid(*arguments: str | Path, stdin: str | bytes = b"", cwd: Path | None = None) -> Done:
    """Run the command line, in this process for speed, and return what it printed."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        patch.setenv("COLUMNS", "100")
        patch.chdir(cwd or Path.cwd())
        with pellucid_package.reference(), warnings_printed():
            code = main([str(argument) for argument in arguments])
    return Done(arguments, code, out.getvalue(), err.getvalue())


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a separate process."""
    command = [sys.executable, "-m", "pellucid", *arguments]
    return subprocess.run(command, check=False, timeout=120, **options)


def pairs(count: int) -> str:
    """Tab-separated pairs of four letters and the same in capitals."""
    words = ["".join("abcdefg"[(n // 7**k) % 7] for k in range(4)) for n in range(count)]
    return "".join(f"{word}\t{word.upper()}\n" for word in words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings, pairs, and a run trained on them."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    (folder / "words.tsv").write_text(pairs(200), encoding="utf-8")
    done = pellucid("train", "tiny.toml", "--data.train", "words.tsv", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def failed(done: Done, code: int, *words: str) -> None:
    """Hold that a command ended as it should: one message, no traceback, no bug."""
    assert "Traceback" not in done.stderr, done.stderr
    assert "This is a bug" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr + done.stdout
    for word in words:
        assert word in done.stderr, done.stderr


def test_without_a_command_it_lists_them() -> None:
    done = pellucid()
    assert done.returncode == 2
    assert all(f"\n  {verb} " in done.stdout for verb in COMMANDS)
    assert pellucid("--help").returncode == 0


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_has_help(verb: str) -> None:
    done = pellucid(verb, "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: pellucid {verb}" in done.stdout
    assert "Raises" not in done.stdout  # that is for programs


def test_train_shows_every_setting_with_default_and_meaning() -> None:
    shown = " ".join(pellucid("train", "g2p-en", "--help-all").stdout.split())
    for words in ("--model.d-model INT", "--training.schedule.lr FLOAT", "--data.train", "--seed"):
        assert words in shown
    heads = "Heads H of every attention; they divide d_model unless head_dim is set. (default: 4)"
    assert heads in shown
    assert "Raises" not in shown
    assert "--model.tie-embeddings" in shown
    assert "the tokenizer's settings and the model's sizes cannot" in shown
    assert "--model.model-type" not in shown  # what a recipe is, no word changes


def test_an_unknown_command_suggests_the_nearest() -> None:
    failed(pellucid("trian", "g2p-en"), 2, "no command 'trian' (did you mean train?)")


@pytest.mark.parametrize("verb", ["demo", "recipes", "check", "evaluate", "generate", "train"])
def test_an_unknown_option_is_wrong_use(verb: str, place: Path) -> None:
    named = {"train": ["tiny.toml"], "evaluate": ["runs/tiny"], "generate": ["runs/tiny"]}
    failed(pellucid(verb, *named.get(verb, []), "--no-such-option", cwd=place), 2, "no-such-option")


def test_a_misspelt_setting_suggests_the_nearest(place: Path) -> None:
    failed(pellucid("train", "tiny.toml", "--model.d-modle", "8", cwd=place), 2, "--model.d-model")


def test_a_bug_is_one_message_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down() -> list[str]:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("pellucid.apps.cli.recipes.recipe_names", break_down)
    assert main(["recipes"]) == 1
    message = capsys.readouterr().err
    assert "ZeroDivisionError: by nought" in message
    assert "Traceback" not in message
    assert main(["recipes", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a"),
            "a: No space left on device; nothing saved before is lost",
        ),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied"),
        (MemoryError(), "out of memory; try a smaller batch (data.batch_tokens), beam or model"),
    ],
)
def test_what_the_system_refuses_is_no_bug(error: Exception, message: str) -> None:
    assert describe(error) == message


def test_it_runs_as_a_module() -> None:
    done = process("trian", stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("pellucid: no command")


def test_a_warning_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "words.tsv").write_text("a\tb\n" * 30 + f"c\t{'c' * 18}\n", encoding="utf-8")
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    train = ("train", "tiny.toml", "--data.train", "words.tsv", "--data.held-out", "0")
    done = process(*train, cwd=tmp_path, capture_output=True)
    warning = b"pellucid: left out 1 of 31 pairs: expected 1 to 17 tokens on both sides"
    warning += b" (--data.max-tokens)\n"
    assert (done.returncode, done.stderr.replace(COMPILES, b"")) == (0, warning)


def test_it_says_when_kernels_are_compiled(tmp_path: Path) -> None:
    script = (
        "from pellucid.apps.cli.main import main; from pellucid.kernels.backend import compile; "
        "main(['--version']); compile.announce()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stderr == COMPILES
    sets = "from pellucid.kernels.backend import prepared; prepared.VERSION = '0.1'"
    other = script.replace("compile.announce()", f"{sets}; compile.announce()")
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, check=True, text=True)
    begins = "pellucid: compiling kernels, up to a minute, once: the prepared ones are for llvmlite"
    assert (done.stderr.startswith(begins), done.stderr.count("\n")) == (True, 1)
    (tmp_path / "file").touch()
    nowhere = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file" / "x")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, env=nowhere
    )
    assert b"compiled again at every start" in done.stderr
    assert COMPILES not in done.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process("recipes", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


def test_version() -> None:
    assert pellucid("--version").stdout.startswith("pellucid 0.")
    failed(pellucid("--version", "x"), 2, "x: more than this command takes; see pellucid --help")


@pytest.mark.parametrize("word", ["help", "--help", "-h"])
def test_help_of_a_command_may_come_first(word: str) -> None:
    assert pellucid(word, "recipes").stdout == pellucid("recipes", "--help").stdout
    assert "usage: pellucid lab run" in pellucid(word, "lab", "run").stdout
    assert pellucid(word, "--help").stdout == pellucid().stdout
    failed(pellucid(word, "trian"), 2, "no command 'trian' (did you mean train?)")


def test_check_shows_the_rows_that_are_asked_for() -> None:
    """All rows: tests/test_check.py, and `make wheel`."""
    done = pellucid("check", "op softmax", "silu", "rotary")
    assert done.returncode == 0, done.stdout
    assert "WRONG" not in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.rstrip().endswith("ok")]
    assert len(rows) > 3
    assert all("op softmax" in row or "silu" in row or "rotary" in row for row in rows)


def test_check_names_a_row_that_is_near() -> None:
    done = pellucid("check", "sofmax")
    assert done.returncode == 2
    assert "no op or layer has 'sofmax' in its name (did you mean softmax?)" in done.stderr


def test_recipes_are_listed() -> None:
    done = pellucid("recipes")
    assert all(name in done.stdout for name in ("chat-ko-small", "g2p-demo", "g2p-en"))


class TestTrain:
    """What a run leaves behind, and what it refuses."""

    def test_a_run_folder_has_its_parts(self, place: Path) -> None:
        run = place / "runs" / "tiny"
        for part in ("config.toml", "metrics.jsonl", "checkpoints", "model/README.md"):
            assert (run / part).exists(), part
        metrics = (run / "metrics.jsonl").read_text(encoding="utf-8")
        events = [json.loads(line)["event"] for line in metrics.splitlines()]
        assert "validated" in events
        assert "ended" in events

    def test_its_settings_train_again_to_the_same_bits(self, place: Path) -> None:
        again = pellucid("train", "runs/tiny/config.toml", "--run", "again", cwd=place)
        assert again.returncode == 0, again.stderr
        weights = [(place / run / "model/model.safetensors") for run in ("runs/tiny", "again")]
        assert weights[0].read_bytes() == weights[1].read_bytes()

    def test_what_to_type_next_can_be_copied(self, place: Path, tmp_path: Path) -> None:
        run = tmp_path / f"{'x' * 83} y"  # with a blank, and longer than a line
        train = ("train", "tiny.toml", "--data.train", "words.tsv", "--training.steps", "1")
        done = pellucid(*train, "--run", run, cwd=place)
        failed(done, 0)
        card = (run / "model" / "README.md").read_text(encoding="utf-8")
        for verb in ("generate", "evaluate"):
            assert f" pellucid {verb} '{run}'\n" in done.stdout
            assert f"\npellucid {verb} '{run}'\n" in card
        shutil.rmtree(run / "model")
        failed(pellucid("generate", run, "abc"), 1, f"finish it: pellucid train '{run}' --resume")

    def test_what_a_recipe_says_of_its_corpus_is_not_said_of_other_data(
        self, place: Path, tmp_path: Path
    ) -> None:
        small = ("--training.steps", "1", "--model.d-model", "16", "--evaluation.metric", "none")
        for name, option in (("own", ()), ("described", ("--description", "Mine."))):
            train = ("train", "chatbot-ko", "--data.train", "words.tsv", *small, *option)
            failed(pellucid(*train, "--run", tmp_path / name, cwd=place), 0)
        cards = [(tmp_path / run / "model" / "README.md") for run in ("own", "described")]
        own, described = (path.read_text(encoding="utf-8") for path in cards)
        assert "Korean" not in own
        assert "Mine." in described

    def test_a_run_in_the_current_folder_has_its_name(self, place: Path) -> None:
        here = place / "here"
        here.mkdir()
        train = ("train", "../tiny.toml", "--data.train", "../words.tsv", "--training.steps", "1")
        done = pellucid(*train, "--run", ".", cwd=here)
        failed(done, 0)
        assert "here: " in done.stdout
        assert "\n# here\n" in (here / "model" / "README.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("run", [["--run="], ["--run", ""], ["--run=", "--seed", "5"]])
    def test_a_run_without_a_folder_is_refused(
        self, run: list[str], place: Path, tmp_path: Path
    ) -> None:
        train = ("train", place / "tiny.toml", "--data.train", place / "words.tsv")
        failed(pellucid(*train, *run, cwd=tmp_path), 2, "--run needs a folder")
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_holds_a_run_is_not_overwritten(self, place: Path) -> None:
        done = pellucid("train", "tiny.toml", "--data.train", "words.tsv", cwd=place)
        failed(done, 1, "already holds a run", "--resume")

    def test_resuming_takes_the_settings_of_the_run(self, place: Path) -> None:
        assert pellucid("train", "tiny", "--resume", cwd=place).returncode == 0
        assert pellucid("train", "--resume", "runs/tiny", cwd=place).returncode == 0

    def test_resuming_with_other_settings_is_refused_and_they_are_named(self, place: Path) -> None:
        done = pellucid("train", "--resume", "runs/tiny", "--seed", "5", cwd=place)
        failed(done, 1, "seed: 0 -> 5")

    def test_layers_that_no_checkpoint_has_are_refused_before_they_are_built(
        self, place: Path
    ) -> None:
        many = ("--model.decoder-layers", "1000000000")
        done = pellucid("train", "--resume", "runs/tiny", *many, cwd=place)
        failed(done, 1, "model.decoder_layers: 1 -> 1000000000")

    def test_more_steps_can_be_asked_for(self, place: Path) -> None:
        pellucid("train", "tiny.toml", "--data.train", "words.tsv", "--run", "more", cwd=place)
        done = pellucid(
            *("train", "--resume", "more", "--accept-changes", "--training.steps", "5"), cwd=place
        )
        assert done.returncode == 0, done.stderr
        assert "5 steps" in done.stdout

    def test_a_folder_of_the_users_own_is_left_alone(self, place: Path, tmp_path: Path) -> None:
        (tmp_path / "own" / "model").mkdir(parents=True)
        (tmp_path / "own" / "model" / "weights.bin").write_text("precious")
        (tmp_path / "own" / "metrics.jsonl").write_text("mine")
        train = ("train", "tiny.toml", "--data.train", "words.tsv", "--run", tmp_path / "own")
        failed(pellucid(*train, cwd=place), 1, "already holds model, metrics.jsonl")
        assert (tmp_path / "own" / "model" / "weights.bin").read_text() == "precious"
        assert (tmp_path / "own" / "metrics.jsonl").read_text() == "mine"

    def test_a_refused_change_changes_nothing(self, place: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        pellucid("train", "tiny.toml", "--data.train", "words.tsv", "--run", run, cwd=place)
        wider = ("--accept-changes", "--model.d-model", "24")
        failed(
            pellucid("train", "--resume", run, *wider, cwd=place),
            1,
            "expected shape (17, 24), got (17, 12)",
        )
        done = pellucid("train", "--resume", run, cwd=place)
        assert done.returncode == 0, done.stderr
        assert "| model.d_model | 12 |" in (run / "model" / "README.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        "wrong, words",
        [
            (["--data.batch-tokens", "7"], "batch_tokens = 7 does not hold the longest pair"),
            (["--training.monitor", "bleu"], "evaluation.metric = 'bleu' gives it"),
            (["--training.steps", "None"], "training has no end"),
        ],
    )
    def test_wrong_use_can_be_put_right(
        self, wrong: list[str], words: str, place: Path, tmp_path: Path
    ) -> None:
        train = ("train", "tiny.toml", "--data.train", "words.tsv", "--run", tmp_path / "run")
        failed(pellucid(*train, *wrong, cwd=place), 2, words)
        assert not (tmp_path / "run").exists()
        failed(pellucid(*train, cwd=place), 0)

    @pytest.mark.parametrize("metric", [name for name in METRICS if METRICS[name].kind != "label"])
    def test_a_metric_gives_the_scores_that_can_be_monitored(
        self, metric: str, place: Path, tmp_path: Path
    ) -> None:
        *_, monitored = METRICS[metric].scores
        done = pellucid(
            *("train", "tiny.toml", "--data.train", "words.tsv", "--run", tmp_path / "run"),
            *("--evaluation.metric", metric, "--training.monitor", monitored),
            cwd=place,
        )
        failed(done, 0)
        lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        given = [e["scores"] for e in map(json.loads, lines) if e["event"] == "validated"]
        assert [list(scores) for scores in given] == [list(METRICS[metric].scores)] * 2

    def test_resuming_on_other_data_is_refused(self, place: Path) -> None:
        (place / "own.tsv").write_text(pairs(150), encoding="utf-8")
        pellucid("train", "tiny.toml", "--data.train", "own.tsv", "--run", "own", cwd=place)
        (place / "own.tsv").write_text(pairs(140), encoding="utf-8")
        failed(pellucid("train", "--resume", "own", cwd=place), 1, "training data is not what")

    def test_resuming_nothing_is_refused(self, place: Path) -> None:
        failed(pellucid("train", "g2p-demo", "--resume", cwd=place), 1, "no run here to resume")

    @pytest.mark.parametrize(
        "arguments, words",
        [
            (["g2p-enn"], ["no recipe", "did you mean g2p-en?"]),
            (["absent.toml"], ["absent.toml: there is no such file"]),
            (["own.tsv"], ["no recipe", "data of your own are given as --data.train"]),
            ([], ["which recipe?"]),
            (["tiny.toml"], ["data.corpus", "data.train"]),
            (["tiny.toml", "--data.corpus", "chaterbot-ko"], ["did you mean chatterbot-ko?"]),
            (["tiny.toml", "--model.num-attention-heads", "5"], ["12 is not a multiple of 5"]),
            (["tiny.toml", "--training.schedule.lr", "-1"], ["lr must be above 0"]),
            (["tiny.toml", "--seed", "-1"], ["seed must be at least 0, got -1"]),
            (["tiny.toml", "--training.seed", "-1"], ["seed must be at least 0, got -1"]),
            (["tiny.toml", "--model.dropout", "1.5"], ["dropout must be"]),
            (["tiny.toml", "--data.max-tokens", "100"], ["max_position_embeddings"]),
            (["tiny.toml", "--model.model-type", "pellucid-causal-lm"], ["in a TOML file"]),
            (["tiny.toml", "--model.model_type=pellucid-seq2seq"], ["in a TOML file"]),
        ],
    )
    def test_wrong_use(self, arguments: list[str], words: list[str], place: Path) -> None:
        failed(pellucid("train", *arguments, "--run", "wrong", cwd=place), 2, *words)
        assert not (place / "wrong").exists()

    @pytest.mark.parametrize(
        "idle, words",
        [
            (["--data.held-out", "0.2"], "--data.held-out is for files of your own"),
            (["--data.columns", "ko", "en"], "--data.columns is for files of your own"),
            (["--data.train", "words.tsv", "--data.split", "all"], "--data.split is for a corpus"),
            (
                [*("--data.train", "words.tsv", "--data.valid", "words.tsv"), "--data.held-out=0"],
                "--data.held-out is for files of your own without validation files",
            ),
        ],
    )
    def test_what_cannot_apply_is_refused(self, idle: list[str], words: str, place: Path) -> None:
        done = pellucid("train", "chat-ko-small", *idle, "--run", "wrong", cwd=place)
        failed(done, 2, words)
        assert not (place / "wrong").exists()

    def test_a_recipes_own_split_gives_way_to_files(self, place: Path, tmp_path: Path) -> None:
        recipe = TINY.replace("[data]", '[data]\ncorpus = "chatbot-ko"\nsplit = "by_answer"')
        (tmp_path / "tiny.toml").write_text(recipe, encoding="utf-8")
        own = ("--data.train", place / "words.tsv", "--data.held-out", "0.2")
        failed(pellucid("train", "tiny.toml", *own, cwd=tmp_path), 0)

    @pytest.mark.parametrize(
        "write, words",
        [
            (lambda path: path.write_bytes(b""), ["is empty"]),
            (lambda path: path.write_bytes(b"a\tb\nc\n"), ["line 2: expected 2 columns"]),
            (lambda path: path.write_bytes(b"a\tb\n\xff\tb\n"), ["line 2: not UTF-8"]),
            (lambda path: path.write_bytes(b"a\tb\n\0\tb\n"), ["line 2: holds a NUL"]),
            (lambda path: path.write_bytes(b"a\t" + b"b" * 100_000), ["line 1: 100,002"]),
            (lambda path: path.mkdir(), ["is a folder"]),
            (lambda path: None, ["no such file"]),
        ],
    )
    def test_bad_files_name_the_line(
        self, write: Callable[[Path], object], words: list[str], place: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "bad.tsv"
        write(path)
        run = tmp_path / "run"
        done = pellucid("train", "tiny.toml", "--data.train", path, "--run", run, cwd=place)
        failed(done, 1, "bad.tsv", *words)

    def test_divergence_is_reported(self, place: Path, tmp_path: Path) -> None:
        done = pellucid(
            *("train", "tiny.toml", "--data.train", "words.tsv", "--run", tmp_path / "run"),
            *("--training.schedule.lr", "1e30", "--training.steps", "50"),
            cwd=place,
        )
        failed(done, 1, "diverged")

    def test_a_last_step_that_diverges_makes_no_model(self, place: Path, tmp_path: Path) -> None:
        done = pellucid(
            *("train", "tiny.toml", "--data.train", "words.tsv", "--run", tmp_path / "run"),
            *("--data.held-out", "0", "--training.steps", "1"),
            *("--training.schedule.lr", "3e38", "--training.schedule.warmup", "0"),
            cwd=place,
        )
        failed(done, 1, "diverged at step 1", "not finite")
        assert not (tmp_path / "run" / "model").exists()

    def test_an_unwritable_folder_is_reported(self, place: Path) -> None:
        (place / "file").write_text("", encoding="utf-8")
        done = pellucid(
            *("train", "tiny.toml", "--data.train", "words.tsv", "--run", "file/run"), cwd=place
        )
        failed(done, 1, "file/run: cannot be written: Not a directory; nothing was changed")

    def test_scores_taken_before_weights_were_rounded_are_marked(
        self, place: Path, tmp_path: Path
    ) -> None:
        train = ("train", "tiny.toml", "--data.train", "words.tsv", "--training.steps", "1")
        done = pellucid(*train, "--weights", "int8", "--run", tmp_path / "run", cwd=place)
        failed(done, 0)
        assert "; scored before the weights were stored as int8\n" in done.stdout
        card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
        assert "before they were stored as int8" in card
        done = pellucid("quantize", "runs/tiny", tmp_path / "small", cwd=place)
        card = (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
        assert "before they were stored as float16" in card

    def test_two_parallel_files(self, place: Path, tmp_path: Path) -> None:
        rows = [line.split("\t") for line in pairs(100).splitlines()]
        for side, name in enumerate(("src.txt", "tgt.txt")):
            text = "\n".join(row[side] for row in rows)
            (tmp_path / name).write_text(text, encoding="utf-8")
        done = pellucid(
            *("train", "tiny.toml", "--run", tmp_path / "run"),
            *("--data.train", tmp_path / "src.txt", tmp_path / "tgt.txt"),
            cwd=place,
        )
        assert done.returncode == 0, done.stderr


class TestStopping:
    """Runs in processes of their own, ended from outside."""

    DATA = ("--data.train", "words.tsv", "--model.dropout", "0.1")
    ARGUMENTS = (*DATA, "--training.steps", "100")

    def begin(self, place: Path, run: Path, steps: int = 100) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pellucid", "train", "tiny.toml", *self.DATA]
        return subprocess.Popen(
            [*command, "--training.steps", str(steps), "--run", str(run)],
            cwd=place,
            env={**os.environ, "PELLUCID_KERNELS": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def start(self, place: Path, run: Path, steps: int = 100) -> subprocess.Popen[bytes]:
        """Begin a run and wait for its second checkpoint."""
        running = self.begin(place, run, steps)
        while not (run / "checkpoints" / "step-00000004").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.01)
        return running

    def test_killed_and_resumed_gives_the_same_bits(self, place: Path, tmp_path: Path) -> None:
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        done = pellucid("train", "tiny.toml", *self.ARGUMENTS, "--run", whole, cwd=place)
        assert done.returncode == 0, done.stderr
        running = self.start(place, parts)
        running.kill()
        running.communicate()
        assert not (parts / "model").exists()
        done = pellucid("train", "--resume", parts, cwd=place)
        assert done.returncode == 0, done.stderr
        weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, parts)]
        assert weights[0] == weights[1]
        assert self.metrics(whole) == self.metrics(parts)

    @staticmethod
    def metrics(run: Path) -> list[dict[str, object]]:
        """The records of a run, time fields aside."""
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return [{k: v for k, v in r.items() if k not in TIME_FIELDS} for r in records]

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_saves_and_says_how_to_go_on(
        self, number: signal.Signals, place: Path, tmp_path: Path
    ) -> None:
        running = self.start(place, tmp_path / "run", steps=1_000_000)
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
        assert running.returncode == 128 + number, err.decode()
        assert f"pellucid train {tmp_path / 'run'} --resume" in out.decode()
        assert err.decode() == (
            f"pellucid: {number.name}: stopping after the current step, which is saved; a "
            "second Ctrl-C stops at once and saves nothing\n"
        )

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
    def test_nobody_reading_any_more_is_a_signal_too(self, place: Path, tmp_path: Path) -> None:
        whole, run = tmp_path / "whole", tmp_path / "run"
        running = self.begin(place, run)
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr is not None
        with running.stderr:
            reported = running.stderr.read().decode()
        assert running.wait(timeout=60) == 141, reported
        assert f"resume from it: pellucid train {run} --resume\n" in reported
        assert reported.count("\n") == 1
        assert list((run / "checkpoints").iterdir())
        assert not (run / "model").exists()
        for arguments in (("--resume", run), ("tiny.toml", *self.ARGUMENTS, "--run", whole)):
            failed(pellucid("train", *arguments, cwd=place), 0)
        assert self.metrics(whole) == self.metrics(run)


def test_every_command_that_loads_a_model_accepts_changes(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    search = tmp_path / "runs" / "tiny" / "model" / "generation_config.json"
    settings = json.loads(search.read_text(encoding="utf-8"))
    search.write_text(json.dumps(settings | {"max_length": 3}), encoding="utf-8")
    run = "runs/tiny"
    for words, stdin in (
        (("generate", run, "abc"), ""),
        (("evaluate", run), ""),
        (("view", run, "abc"), ""),
        (("quantize", run, "small"), ""),
    ):
        failed(pellucid(*words, cwd=tmp_path, stdin=stdin), 1, "generation_config.json: was chang")
        failed(pellucid(*words, "--no-accept-changes", cwd=tmp_path, stdin=stdin), 1, "was changed")
        done = pellucid(*words, "--accept-changes", cwd=tmp_path, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr)
    export = ("export", run, "exported", "--to", "onnx")
    failed(pellucid(*export, cwd=tmp_path), 1, "was changed")
    assert "was changed" not in pellucid(*export, "--accept-changes", cwd=tmp_path).stderr
    with pytest.raises(UserError, match="was changed"):
        load_models({"it": tmp_path / run})
    assert load_models({"it": tmp_path / run}, accept_changes=True)


@pytest.mark.skipif(os.name == "nt", reason="devices and pipes of POSIX")
def test_what_never_ends_is_refused(place: Path, tmp_path: Path) -> None:
    for name in ("zero.toml", "zero.tsv"):
        (tmp_path / name).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.toml")
    for toml in (tmp_path / "zero.toml", tmp_path / "pipe.toml"):
        for words in (("train",), ("lab", "run")):
            failed(pellucid(*words, toml, cwd=tmp_path), 1, f"{toml}: is a pipe or a device")
    for words in (
        ("--data.train", "zero.tsv"),
        ("--data.train", "words.tsv", "--data.valid", "zero.tsv"),
    ):
        (tmp_path / "words.tsv").write_text(pairs(9), encoding="utf-8")
        done = pellucid("train", place / "tiny.toml", *words, cwd=tmp_path)
        failed(done, 1, "zero.tsv: is a device")
    done = pellucid("generate", place / "runs" / "tiny", "--file", "/dev/zero")
    failed(done, 1, "/dev/zero, line 1: holds a NUL byte, so it is not a text file")


def test_a_stream_that_is_no_text_is_named(place: Path) -> None:
    for stdin, words in (
        (b"a" * (2**24 + 2**16 + 1), "line 1: more than 16,777,216 bytes; expected a text a line"),
        (b"\xff\xfe" + "abc\n".encode("utf-16-le"), ": is UTF-16; save it as UTF-8"),
        ("가나\n".encode("utf-16-be"), ": is UTF-16; save it as UTF-8"),
        (b"abc\nab\0c\n", ", line 2: holds a NUL byte, so it is not a text file"),
    ):
        failed(pellucid("generate", "runs/tiny", stdin=stdin, cwd=place), 1, words)
    later = windows(io.BytesIO(b"abc\n" * (CHUNK // 4) + b"\xff\xfe\n"))  # no mark of UTF-16
    assert "not UTF-8 (byte 0xff)" in str([line for some in later for line in some][-1])


def test_special_tokens_are_those_of_the_tokenizer(place: Path, tmp_path: Path) -> None:
    other = ("--model.eos-token-id", "5", "--run", str(tmp_path / "run"))
    done = pellucid("train", "tiny.toml", "--data.train", "words.tsv", *other, cwd=place)
    failed(done, 2, "eos_token_id must be 0, 1 and 2", "got 0, 1, 5")


class TestGenerate:
    """Text in, text out."""

    def test_arguments_are_answered_in_order(self, place: Path) -> None:
        one, two = (pellucid("generate", "runs/tiny", t, cwd=place).stdout for t in ("abc", "gg"))
        both = pellucid("generate", "runs/tiny", "abc", "gg", cwd=place)
        assert both.returncode == 0, both.stderr
        assert both.stdout == one + two
        assert both.stdout.count("\n") == 2

    def test_lines_come_back_in_order_and_empty_ones_stay_empty(self, place: Path) -> None:
        done = pellucid("generate", "runs/tiny/model", stdin="abc\n\r\n\ngg\n", cwd=place)
        single = pellucid("generate", "runs/tiny", "abc", "gg", cwd=place).stdout.split("\n")
        assert done.stdout.split("\n") == [single[0], "", "", single[1], ""]

    def test_broken_utf8_is_reported_and_the_rest_goes_on(self, place: Path) -> None:
        done = pellucid("generate", "runs/tiny", stdin=b"abc\n\xff\xfe\ngg\n", cwd=place)
        failed(done, 1, "line 2: not UTF-8")
        assert done.stdout.count("\n") == 3

    def test_a_byte_order_mark_is_no_text(self, place: Path) -> None:
        marked = pellucid("generate", "runs/tiny", stdin=b"\xef\xbb\xbfabc\n", cwd=place)
        failed(marked, 0)
        assert re.fullmatch(f"(?:{ENDLESS}\n)?", marked.stderr)
        assert marked.stdout == pellucid("generate", "runs/tiny", "abc", cwd=place).stdout

    def test_an_argument_that_is_not_utf8_is_reported_and_the_rest_goes_on(
        self, place: Path
    ) -> None:
        done = pellucid("generate", "runs/tiny", "\udcff", "abc", "--json", cwd=place)
        failed(done, 1, "text 1: not UTF-8")
        broken, whole = map(json.loads, done.stdout.splitlines())
        assert broken["source"] is None
        assert "parts" in whole

    def test_an_output_that_cannot_hold_an_answer_is_named(self, place: Path) -> None:
        command = ("generate", "runs/tiny", "\ud55c", "--json")
        latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        done = process(*command, cwd=place, env=latin, capture_output=True, text=True)
        failed(done, 1, "the output is latin-1", "PYTHONIOENCODING=utf-8")

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
    def test_a_closed_stream_is_an_empty_one(self, closed: str, place: Path) -> None:
        command = f'exec "$0" -m pellucid generate runs/tiny abc {closed}'
        shell = ["sh", "-c", command, sys.executable]
        done = subprocess.run(shell, cwd=place, capture_output=True, text=True, timeout=120)
        failed(done, 0)
        told = done.stderr.replace(COMPILES.decode(), "")
        assert re.fullmatch(f"(?:{ENDLESS}\n)?", told)

    def test_a_long_text_is_refused_not_truncated(self, place: Path) -> None:
        done = pellucid("generate", "runs/tiny", "a" * 20, "abc", cwd=place)
        failed(done, 1, "text 1: 20 tokens, more than the 19")
        assert done.stdout.startswith("\n")

    def test_unseen_characters_are_reported(self, place: Path) -> None:
        failed(
            pellucid("generate", "runs/tiny", "abé", cwd=place), 0, "not seen in training", "'é'"
        )
        done = pellucid("generate", "runs/tiny", "abжж", "abж", "ж", cwd=place)
        failed(done, 1, "text 1: half of it, or more,", "text 2: not seen in", "text 3: half")
        assert [bool(line) for line in done.stdout.splitlines()] == [False, True, False]

    def test_a_beam_gives_several_answers_with_scores(self, place: Path) -> None:
        done = pellucid(
            "generate", "runs/tiny", "abc", "--beam=3", "--best=2", "--scores", cwd=place
        )
        first, _, second, _ = done.stdout.rstrip("\n").split("\t")
        assert float(first) < 0
        assert float(second) < 0

    @pytest.mark.parametrize(
        "arguments, words",
        [
            ([], "which model?"),
            (["runs/tiny", "a", "--beam", "0"], "beam"),
            (["runs/tiny", "a", "--seed", "-1"], "seed must be at least 0, got -1"),
            (["runs/tiny", "a", "--max-length", "0"], "max_length must be at least 1"),
            (["runs/tiny", "a", "--temperature", "0"], "temperature must be above 0"),
            (["runs/tiny", "a", "--top-k", "-1"], "top_k must be"),
            (["runs/tiny", "a", "--top-p", "1.5"], "top_p must be"),
            (["runs/tiny", "a", "--min-p", "1"], "min_p must be"),
            (["runs/tiny", "a", "--constraints.repetition-penalty", "0.5"], "at least 1"),
            (["runs/tiny", "a", "--constraints.no-repeat-ngram", "-1"], "no_repeat_ngram"),
            (["runs/tiny", "a", "--max-length", "2", "--prefix", "ABC"], "prefix has 3 tokens"),
            (
                ["runs/tiny", "a", "--max-length", "99", "--prefix", 19 * "A"],
                "an answer at most 18",
            ),
            (["runs/tiny", "a", "--prefix", "A\ud55c"], "no tokens for: '\ud55c'"),
            (
                ["runs/tiny", "a", "--length-penalty", "1e300"],
                "length_penalty must be at least -10 and",
            ),
            (
                ["runs/tiny", "a", "--seed", "1", "--beam", "2", "--best", "2"],
                "best = 2 is of a search, and these answers are sampled: leave it out",
            ),
            (["runs/tiny", "a", "--file", "words.tsv"], "not both"),
        ],
    )
    def test_wrong_use(self, arguments: list[str], words: str, place: Path) -> None:
        failed(pellucid("generate", *arguments, cwd=place), 2, words)

    def test_a_file_is_answered_line_by_line(self, place: Path, tmp_path: Path) -> None:
        (tmp_path / "some.txt").write_bytes(b"abc\n\ngg")
        done = pellucid("generate", "runs/tiny", "--file", tmp_path / "some.txt", cwd=place)
        assert done.returncode == 0, done.stderr
        assert done.stdout == pellucid("generate", "runs/tiny", "abc", "", "gg", cwd=place).stdout
        failed(pellucid("generate", "runs/tiny", "--file", "absent", cwd=place), 1, "absent")

    def test_many_lines_come_back_in_order(self, place: Path) -> None:
        words = [line.split("\t")[0][: 1 + n % 4] for n, line in enumerate(pairs(1100).split("\n"))]
        some = [words[n] for n in (0, 511, 512, 513, 1099)]
        done = pellucid("generate", "runs/tiny", stdin="\n".join(words), cwd=place)
        single = pellucid("generate", "runs/tiny", *some, cwd=place).stdout.splitlines()
        lines = done.stdout.splitlines()
        assert [lines[n] for n in (0, 511, 512, 513, 1099)] == single
        assert len(lines) == 1100

    def test_a_long_text_is_answered_word_by_word_as_its_model_learnt(self, place: Path) -> None:
        words = ("abcdefg", "abc", "gfe", "dcba")
        text = "{} {}.  {}, {}."
        done = pellucid("generate", "runs/tiny", text.format(*words), cwd=place)
        assert done.returncode == 0
        assert re.fullmatch(f"(?:{ENDLESS}\n)?", done.stderr)
        answers = pellucid("generate", "runs/tiny", *words, cwd=place).stdout.splitlines()
        assert done.stdout == text.format(*answers) + "\n"
        shown = pellucid("generate", "runs/tiny", "--json", text.format(*words), cwd=place)
        assert ["".join(p["source_tokens"]) for p in json.loads(shown.stdout)["parts"]] == [*words]

    def test_json_has_tokens_scores_and_alignment(self, place: Path) -> None:
        done = pellucid(
            *("generate", "runs/tiny", "--json", "--beam", "3", "--best", "2", "--prefix", "AB"),
            stdin=b"abc\n\xff\n\n",
            cwd=place,
        )
        first, broken, empty = map(json.loads, done.stdout.splitlines())
        (part,) = first["parts"]
        assert part["source_tokens"] == ["a", "b", "c"]
        assert len(part["answers"]) == 2
        for answer in part["answers"]:
            assert answer["text"].startswith("AB")
            silent = ("<pad>", "<s>")  # which a model of three steps does say
            assert "".join(t for t in answer["tokens"] if t not in silent) == answer["text"]
            assert len(answer["alignment"]) == len(answer["tokens"])
            assert set(answer["alignment"]) <= {0, 1, 2}
            assert sum(answer["token_log_p"]) == pytest.approx(answer["log_p"], abs=1e-3)
        assert "not UTF-8" in broken["error"]
        assert empty == {"number": 3, "source": "", "parts": []}

    def test_a_drawn_answer_is_keyed_by_seed_and_place(self, place: Path) -> None:
        draw = ("generate", "runs/tiny", "--temperature", "3", "--seed", "7")
        one = pellucid(*draw, stdin="abc\nabc\ngg\n", cwd=place).stdout
        assert one == pellucid(*draw, "abc", "abc", "gg", cwd=place).stdout
        assert one.split("\n")[0] != one.split("\n")[1]
        greedy = pellucid("generate", "runs/tiny", "abc", cwd=place).stdout
        drawn = pellucid("generate", "runs/tiny", "abc", "--top-k", "1", "--scores", cwd=place)
        assert drawn.stdout.split("\t")[1] == greedy

    def test_one_who_waits_for_each_answer_gets_it(self, place: Path) -> None:
        command = [sys.executable, "-u", "-m", "pellucid", "generate", "runs/tiny"]
        with subprocess.Popen(
            command,
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            for word in (b"abc\n", b"gg\n"):
                child.stdin.write(word)
                child.stdin.flush()
                assert child.stdout.readline().endswith(b"\n")
            child.stdout.close()  # the reader goes while the writer stays
            child.stdin.write(b"abc\n")
            child.stdin.flush()
            assert child.wait(timeout=60) == 0
            assert re.fullmatch(f"(?:{ENDLESS}\n)*", child.stderr.read().decode())
            child.stdin.close()

    @pytest.mark.parametrize(
        "part, content, words",
        [
            ("config.json", None, ["neither a model"]),
            ("config.json", b"{", ["config.json: is damaged"]),
            ("config.json", b"{}", ["not a model of Pellucid's"]),
            ("config.json", "eos_token_id", ["config.json: pad_token_id", "got 0, 1, 5"]),
            ("config.json", "vocabularies", ["config.json: vocabularies is damaged"]),
            ("config.json", "ffn_dim", ["config.json: does not fit", "ffn_dim is 5"]),
            ("target_tokenizer.json", None, ["target_tokenizer.json: is missing"]),
            ("model.safetensors", b"12345678", ["model.safetensors", "not a whole"]),
            ("model.safetensors", None, ["model.safetensors: cannot be read"]),
            ("tokenizer.json", b"{}", ["tokenizer.json"]),
            ("generation_config.json", b'{"beam": "x"}', ["generation_config.json: beam"]),
        ],
    )
    def test_a_damaged_part_is_named(
        self, part: str, content: bytes | str | None, words: list[str], place: Path, tmp_path: Path
    ) -> None:
        for path in (place / "runs/tiny/model").iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        if isinstance(content, str):  # an entry to damage
            settings = json.loads((tmp_path / part).read_text(encoding="utf-8"))
            content = json.dumps({**settings, content: 5}).encode()
        (tmp_path / part).unlink()
        if content is not None:
            (tmp_path / part).write_bytes(content)
        failed(pellucid("generate", tmp_path, "abc", cwd=place), 1, *words)

    def test_layers_that_no_weights_are_for_are_named_before_they_are_built(
        self, place: Path, tmp_path: Path
    ) -> None:
        for path in (place / "runs/tiny/model").iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        settings = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**settings, "encoder_layers": 10**9}))
        reported = "encoder_layers is 1000000000, the weights have 1;"
        failed(pellucid("generate", tmp_path, "abc"), 1, "config.json: does not fit", reported)

    def test_a_tokenizer_of_another_model_is_named(self, place: Path, tmp_path: Path) -> None:
        for path in (place / "runs/tiny/model").iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        settings = json.loads((tmp_path / "config.json").read_text())
        settings["source_vocab_size"] += 1
        (tmp_path / "config.json").write_text(json.dumps(settings))
        failed(pellucid("generate", tmp_path, "abc"), 1, "belongs to another model")

    def test_a_tokenizer_of_the_same_size_but_other_tokens_is_named(
        self, place: Path, tmp_path: Path
    ) -> None:
        for path in (place / "runs/tiny/model").iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        other = (tmp_path / "tokenizer.json").read_text(encoding="utf-8").replace('"a"', '"ä"')
        (tmp_path / "tokenizer.json").write_text(other, encoding="utf-8")
        failed(pellucid("generate", tmp_path, "abc"), 1, "tokenizer.json: its tokens are not those")

    @pytest.mark.parametrize("weights", ["float16", "int8"])
    def test_a_quantized_model_answers(self, weights: str, place: Path, tmp_path: Path) -> None:
        small = tmp_path / "small"
        done = pellucid("quantize", "runs/tiny", small, "--weights", weights, cwd=place)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(" MB") == 2
        sizes = [
            (p / "model.safetensors").stat().st_size for p in (place / "runs/tiny/model", small)
        ]
        assert sizes[1] < sizes[0]
        assert pellucid("generate", small, "abc", cwd=place).returncode == 0
        failed(pellucid("quantize", "runs/tiny", small, cwd=place), 1, "already exists")

    def test_a_run_without_a_model_says_how_to_finish_it(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text("")
        failed(pellucid("generate", tmp_path, "abc"), 1, "--resume")
        failed(pellucid("generate", tmp_path / "absent", "abc"), 1, "no such folder")


class TestEvaluate:
    """Scores on pairs put aside, or given."""

    def test_a_run_is_scored_on_what_was_put_aside(self, place: Path) -> None:
        done = pellucid("evaluate", "runs/tiny", "--json", cwd=place)
        assert done.returncode == 0, done.stderr
        scores = json.loads(done.stdout)
        assert scores["words"] == scores["pairs"] > 0
        assert scores["loss"] > 0

    def test_the_card_says_the_scores(self, place: Path) -> None:
        card = place / "runs/tiny/model/README.md"
        card.write_text("old", encoding="utf-8")
        done = pellucid("evaluate", "runs/tiny", "--metric", "bleu", cwd=place)
        assert done.returncode == 0, done.stderr
        assert "tok:13a" in done.stdout
        assert "tok:13a" in card.read_text(encoding="utf-8")

    def test_a_search_of_ones_own_is_scored_and_leaves_the_card(self, place: Path) -> None:
        card = place / "runs/tiny/model/README.md"
        before = card.read_text(encoding="utf-8")
        plain = pellucid("evaluate", "runs/tiny", "--json", cwd=place)
        short = pellucid("evaluate", "runs/tiny", "--json", "--max-length", "1", cwd=place)
        failed(short, 0)
        assert json.loads(plain.stdout)["per"] != json.loads(short.stdout)["per"]
        assert "PER" in card.read_text(encoding="utf-8")
        card.write_text(before, encoding="utf-8")
        failed(pellucid("evaluate", "runs/tiny", "--max-length", "1", cwd=place), 0)
        assert card.read_text(encoding="utf-8") == before
        idle = pellucid("evaluate", "runs/tiny", "--metric", "none", "--beam", "2", cwd=place)
        failed(idle, 2, "nothing is decoded for these scores")

    def test_the_model_comes_first(self, place: Path) -> None:
        failed(pellucid("evaluate", "--json", "runs/tiny", cwd=place), 2, "which model?")

    def test_pairs_can_be_given(self, place: Path) -> None:
        done = pellucid("evaluate", "runs/tiny/model", "--data", "words.tsv", cwd=place)
        assert done.returncode == 0, done.stderr
        assert "200" in done.stdout

    def test_a_long_source_is_scored_as_it_is_answered(
        self, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        long = f"abcdefg abc. gfe dcba.\tABC\n{'a' * 20}\tA\n"
        (tmp_path / "some.tsv").write_text(pairs(3) + long, encoding="utf-8")
        command = ("evaluate", "runs/tiny", "--json", "--data", str(tmp_path / "some.tsv"))
        done = pellucid(*command, cwd=place)
        failed(done, 0)
        assert "1 of 5 sources cannot be answered" in caplog.text
        assert "the first: 20 tokens, more than the 19" in caplog.text
        assert json.loads(done.stdout)["words"] == 5
        assert json.loads(pellucid(*command, "--metric", "none", cwd=place).stdout)["pairs"] == 3

    def test_a_long_held_out_source_does_not_end_a_run(self, place: Path, tmp_path: Path) -> None:
        (tmp_path / "aside.tsv").write_text(pairs(3) + f"{'a' * 20}\tA\n", encoding="utf-8")
        aside = ("--data.train", "words.tsv", "--data.valid", str(tmp_path / "aside.tsv"))
        done = pellucid("train", "tiny.toml", *aside, "--run", tmp_path / "run", cwd=place)
        failed(done, 0)
        assert (tmp_path / "run/model/config.json").is_file()

    def test_a_split_of_files_that_changed_is_refused(self, place: Path, tmp_path: Path) -> None:
        own = tmp_path / "own.tsv"
        own.write_text(pairs(200), encoding="utf-8")
        run = tmp_path / "run"
        pellucid("train", "tiny.toml", "--data.train", own, "--run", run, cwd=place)
        assert pellucid("evaluate", run).returncode == 0
        own.write_text(pairs(100), encoding="utf-8")
        failed(pellucid("evaluate", run), 1, "own.tsv: not what", "--data")

    def test_a_bare_model_needs_pairs(self, place: Path) -> None:
        failed(pellucid("evaluate", "runs/tiny/model", cwd=place), 2, "--data")
