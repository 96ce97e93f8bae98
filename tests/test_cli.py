"""The command as a user meets it: messages, exit codes, pipes. Each run is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.cli import VERBS, main


def pellucid(
    *arguments: str, stdin: str | bytes | None = None, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process and return what it said."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **variables},
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_without_a_verb_it_lists_them() -> None:
    done = pellucid()
    assert done.returncode == 2
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)
    assert pellucid("--help").returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    done = pellucid(verb, "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: pellucid {verb}" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_unknown_verb_suggests_the_nearest() -> None:
    done = pellucid("trian", "g2p-en")
    assert done.returncode == 2
    assert "no verb 'trian' (did you mean train?)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_is_wrong_use(verb: str) -> None:
    done = pellucid(verb, "--no-such-option")
    assert done.returncode == 2
    assert "no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_of_ours_is_one_message_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(arguments: list[str]) -> int:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("pellucid.commands.recipes.run", break_down)
    assert main(["recipes"]) == 1
    message = capsys.readouterr().err
    assert "ZeroDivisionError: by nought" in message
    assert "Traceback" not in message
    assert main(["recipes", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", "recipes"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


def test_version() -> None:
    assert pellucid("--version").stdout.startswith("pellucid 0.")


def test_check_passes_on_this_machine() -> None:
    done = pellucid("check")
    assert done.returncode == 0, done.stdout
    assert "WRONG" not in done.stdout
