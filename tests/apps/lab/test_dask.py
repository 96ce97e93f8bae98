"""An existing engine's executor: a local Dask cluster of two workers, one killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.apps.lab.small import write_study
from tests.oracles import oracle

from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.study_file import read_study

pytestmark = [pytest.mark.alone, pytest.mark.oracle("distributed")]
distributed = oracle("distributed")


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.filterwarnings("default")  # the engine's own
def test_no_run_is_lost_when_a_worker_is_killed(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path, epochs=40)).trials()[:6]
    file, runs = tmp_path / "results.jsonl", tmp_path / "runs"
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killed = threading.Event()

        def kill_one() -> None:
            while not list(runs.glob("*/checkpoints/step-*")):
                time.sleep(0.05)
            os.kill(pids[0], signal.SIGKILL)
            killed.set()

        threading.Thread(target=kill_one, daemon=True).start()
        ended = run_study(trials, file, runs, executor=client.get_executor())
        assert killed.is_set()
    lines = read_results(file)
    assert (ended.done, ended.failed) == (6, 0)
    assert all(lines[t.id]["status"] == "done" for t in trials)
