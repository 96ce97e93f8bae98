"""`pellucid completion`: what bash then completes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_bash_completes_commands_names_and_options(capsys: Capture) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("needs bash")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def completed(*words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _pellucid"
        done = subprocess.run(
            [bash, "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    assert completed("pellucid", "") == list(COMMANDS)
    assert completed("pellucid", "eva") == ["evaluate"]
    assert completed("pellucid", "train", "g2p-s") == ["g2p-small"]
    assert completed("pellucid", "train", "g2p-small", "--training.schedule.l") == [
        "--training.schedule.lr"
    ]
    assert completed("pellucid", "lab", "run", "article") == ["article-003"]
    assert "--only" in completed("pellucid", "lab", "run", "--")
    assert completed("pellucid", "generate", "runs/") == []  # files, by bash itself


def test_zsh_reads_the_same_script_and_other_shells_are_refused(capsys: Capture) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -Uz compinit bashcompinit")
    assert main(["completion", "fish"]) == 2
