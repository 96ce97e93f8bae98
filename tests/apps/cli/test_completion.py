"""`pellucid completion`: what bash and zsh then complete."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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


ZPTY = """
zmodload zsh/zpty
TERM=dumb zpty shell zsh -f -i
zpty -w shell "source $1; PS1=READ''Y"
zpty -r -m shell line '*READY*'
zpty -w -n shell "$2"$'\\t'
zpty -r -m shell line "*$3*" && print -r -- "$3"
"""
"""Type a line and Tab in an interactive zsh, and wait until it shows the line completed."""


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("pellucid eva", "pellucid evaluate "),
        ("pellucid train g2p-s", "pellucid train g2p-small "),
        ("pellucid lab run article", "pellucid lab run article-003 "),
    ],
)
def test_zsh_completes_at_its_prompt(
    typed: str, shown: str, tmp_path: Path, capsys: Capture
) -> None:
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("needs zsh")
    assert main(["completion", "zsh"]) == 0
    script, ask = tmp_path / "completion", tmp_path / "ask"
    script.write_text(f"pellucid() {{ : }}\n{capsys.readouterr().out}")
    ask.write_text(ZPTY)
    done = subprocess.run(
        [zsh, "-f", ask, script, typed, shown], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stdout == f"{shown}\n"


def test_other_shells_are_refused(capsys: Capture) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -Uz compinit bashcompinit")
    assert main(["completion", "fish"]) == 2
