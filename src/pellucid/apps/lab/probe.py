"""Record a study's measures while a model trains, on one fixed batch and without dropout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.measures.measure import Pass
from pellucid.core.batch import Batch
from pellucid.core.files import saving
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import Recorder
from pellucid.training.events import Ended, Event, Started, Stepped


@dataclass(frozen=True)
class Prober:
    """A listener that probes the model after some steps, and when training ends.

    Each probe is appended to `path` as a line of JSON; `read_probes` reads them back.
    """

    model: Seq2Seq
    batch: Batch
    steps: Sequence[int]
    path: Path
    measures: Sequence[str]

    def __call__(self, event: Event) -> None:
        """Probe if it is time."""
        if isinstance(event, Ended) or (
            isinstance(event, Started | Stepped) and event.step in self.steps
        ):
            seen = probe(self.model, self.batch, self.measures)
            found = {"step": event.step, "epoch": event.epoch, **seen}
            with saving(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")


def probe(
    model: Seq2Seq, batch: Batch, measures: Sequence[str] = tuple(MEASURES)
) -> dict[str, Any]:
    """Return what these measures record of one forward and backward pass.

    Afterwards the model has no gradients, and the mode that it had before.
    """
    training, recorder = model.training, Recorder()
    model.eval()
    model.zero_grad()
    with recorder:
        loss, backward = model.loss(batch)
    backward(1.0 / max(loss.tokens, 1))
    seen = Pass(model, batch, recorder.maps)
    found: dict[str, Any] = {}
    for name in measures:
        if (record := MEASURES[name].record) is not None:
            found |= record(seen)
    model.zero_grad()
    model.train(training)
    return found


def read_probes(path: Path) -> list[dict[str, Any]]:
    """Return the probes in a file, by step; of two at one step (of a resumed run) the last.

    A line that a killed process left half written is skipped.
    """
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            one = json.loads(line)
            found[one["step"]] = one
        except (ValueError, TypeError):
            continue
    return [found[step] for step in sorted(found)]
