"""Lines from a pipe that has a name, as a file or the shell's <(…) gives them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apps.cli.test_main import ENDLESS, failed, pellucid
from tests.apps.view.samples import speaking
from tests.small import write_model

import pellucid as pellucid_package
from pellucid.tasks.folder import save_model


@pytest.fixture
def children_die_of_sigint() -> Iterator[None]:
    """Of a job in the background they would not: it ignores SIGINT, and so does what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such pipes")
@pytest.mark.usefixtures("children_die_of_sigint")
def test_ctrl_c_ends_the_waiting_for_the_next_line_of_a_pipe(tmp_path: Path) -> None:
    save_model(tmp_path / "model", speaking(), "# a model")
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "pellucid", "generate", "model", "--file", "pipe"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PELLUCID_KERNELS": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            try:
                pipe.write("가나\n".encode())
                assert running.stdout.readline().endswith(b"\n")
                running.send_signal(signal.SIGINT)
                assert running.wait(timeout=20) == 130
            finally:
                running.kill()
        assert re.fullmatch(f"(?:{ENDLESS}\n)?", running.stderr.read().decode())


def test_models_answer_together() -> None:
    words = ("generate", "g2p-en", "hello", "colonel")
    assert pellucid(*words, "--ensemble", "g2p-en").stdout == pellucid(*words).stdout
    refused = pellucid("generate", "topics-ko", "hello", "--ensemble", "g2p-en")
    failed(refused, 2, "--ensemble is for encoder-decoders; this model is pellucid-classifier")


def test_the_models_of_an_ensemble_all_count(tmp_path: Path) -> None:
    one, two = (write_model(tmp_path / str(seed), seed) for seed in (3, 4))
    with pellucid_package.reference():  # as the command runs here
        first, second = map(pellucid_package.load, (one, two))
        (expected,) = first.ensemble(second).generate_answers(["hello"])[0]
    written = pellucid("generate", one, "hello", "--scores", "--ensemble", two).stdout
    assert written == f"{expected.log_p:.3f}\t{expected.text}\n"
    for alone in (one, two):
        assert pellucid("generate", alone, "hello", "--scores").stdout != written
