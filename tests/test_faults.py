"""A few cases of every campaign of benchmarks/faults, in a process of its own, which forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
def test_a_few_cases_of_every_campaign(tmp_path: Path) -> None:
    fast = ("crashes", "corpora", "commands", "models", "anew", "runs", "gradients", "arguments")
    slow = ("kernels", "requests")  # each case starts a process
    cases = dict.fromkeys(fast, 4) | dict.fromkeys(slow, 1)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "PELLUCID_THREADS": "1"}
    for modes in (fast, slow):
        command = ["-m", "benchmarks.faults", *modes, "--cases", cases[modes[0]], "--seed", 1,
                   "--file", tmp_path / "faults.json"]  # fmt: skip
        done = subprocess.run(
            [sys.executable, *map(str, command)], cwd=ROOT, env=environment, capture_output=True,
            text=True, check=False, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads((tmp_path / "faults.json").read_text(encoding="utf-8"))
    assert {name: record["cases"] for name, record in records.items()} == cases
    became = [what for counts in records["crashes"]["counts"].values() for what in counts]
    assert set(became) == {"same bits"}
    units = sum(record["units"] for record in records.values())
    assert f"{units} cases in {len(cases)} campaigns, seed 1: 0 failures" in done.stdout
