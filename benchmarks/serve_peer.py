"""CTranslate2 behind Pellucid's own HTTP layer, for `benchmarks.serve --peer`.

    python -m benchmarks.serve_peer MODEL --port 0 [--no-engine]

Requests, queue, limits and thread are those of `pellucid serve`; only the engine is another. It has
no batch that requests can join, so each round answers all that wait, up to 64, as one batch for
each processor. --no-engine puts nothing behind the HTTP layer: every text is answered with its own
first tokens at once, which is the most that any engine could reach.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2

from pellucid.apps.serve.app import Application
from pellucid.apps.serve.batcher import Job, Waiting
from pellucid.apps.serve.models import serve_model
from pellucid.apps.serve.server import address, listen, serve
from pellucid.apps.serve.service import Service
from pellucid.generation import SearchConfig
from pellucid.interop.ctranslate2 import write_ctranslate2
from pellucid.tasks.folder import load_model


class OneBatch:
    """Replacement of `serve.batcher.Batcher` that answers all waiting jobs as one batch."""

    running = 0

    def __init__(self) -> None:
        self.waiting = Waiting()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not len(self.waiting)

    @property
    def load(self) -> int:
        """Number of waiting rows."""
        return self.waiting.rows

    def add(self, job: Job) -> None:
        """Queue a job for the next round."""
        self.waiting.add(job)

    def interrupt(self, jobs: int) -> None:
        """Do nothing: a batch is not interrupted."""


class PeerBatcher(OneBatch):
    """Answers waiting jobs batch by batch with CTranslate2."""

    def __init__(self, pipeline: Any, folder: Path, rows: int = 64) -> None:
        super().__init__()
        write_ctranslate2(pipeline.model, pipeline.source, pipeline.target, folder, "float32")
        self.cores = len(os.sched_getaffinity(0))
        self.translator = ctranslate2.Translator(
            str(folder), compute_type="float32", inter_threads=self.cores, intra_threads=1
        )
        self.source = pipeline.source.vocabulary
        self.ids = {name: i for i, name in enumerate(pipeline.target.vocabulary)}
        self.rows = rows

    def round(self) -> int:
        """Answer up to `rows` waiting jobs; return how many tokens the answers have."""
        jobs: list[Job] = []
        while (job := self.waiting.next()) is not None and len(jobs) < self.rows:
            self.waiting.take(job)
            jobs.append(job)
        config = jobs[0].config
        assert isinstance(config, SearchConfig)
        found = self.translator.translate_batch(
            [[self.source[i] for i in job.opening] for job in jobs],
            max_batch_size=max(8, -(-len(jobs) // self.cores)), beam_size=config.beam,
            max_decoding_length=config.max_length, min_decoding_length=0,
            length_penalty=config.length_penalty,
        )  # fmt: skip
        for job, one in zip(jobs, found, strict=True):
            job.answer, job.finished = [self.ids[name] for name in one.hypotheses[0]], True
            job.end()
        return sum(len(job.answer) for job in jobs)


class NoEngine(OneBatch):
    """Answers every text with its own tokens, without a model."""

    def round(self) -> int:
        """Answer the waiting jobs; return how many tokens the answers have."""
        made = 0
        while (job := self.waiting.next()) is not None:
            self.waiting.take(job)
            job.answer, job.finished = list(job.opening), True
            job.end()
            made += len(job.answer)
        return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no-engine", action="store_true", help="the HTTP layer alone")
    arguments = parser.parse_args()
    ours = serve_model("model", load_model(arguments.model))
    with tempfile.TemporaryDirectory() as folder:
        batcher: Any = NoEngine()
        if not arguments.no_engine:
            batcher = PeerBatcher(ours.pipeline, Path(folder) / "model")
        service = Service({"model": replace(ours, batchers=(batcher,))})
        bound = listen("127.0.0.1", arguments.port)
        print(f"serving model at {address(bound)}", flush=True)
        serve(Application(service), service, bound)


if __name__ == "__main__":
    main()
