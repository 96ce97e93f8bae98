"""`pellucid env`: what a bug report needs."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from pellucid import __version__
from pellucid.apps.cli.main import main
from pellucid.kernels.backend.machine import processor


def test_a_bug_report_has_versions_processor_and_threads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_THREADS", "3")
    assert main(["env"]) == 0
    rows = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert rows["pellucid"] == __version__
    assert rows["numpy"] == np.__version__
    assert rows["python"] == platform.python_version()
    assert rows["processor"].startswith(processor())
    assert rows["threads"] == "3"
    assert int(rows["prepared kernels"].split()[0]) >= 0
