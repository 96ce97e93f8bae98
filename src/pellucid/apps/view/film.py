"""The film of one text: what the model makes of it at 20 to 40 steps of its training.

A run keeps it in its folder, a file for each frame: film/step-00000128.json, the record of the text
as a page reads it. The answer is given to the model (teacher forcing), so that every frame has the
same rows; what the model itself would write then is in the frame too.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pellucid.apps.view.backward import code
from pellucid.apps.view.page import FORMAT as PAGE
from pellucid.apps.view.page import PRECISIONS, Precision, as_json, dumps, filled
from pellucid.apps.view.record import Language, Record
from pellucid.apps.view.trace import MASK, TRACES, attention
from pellucid.core.errors import UsageError, UserError
from pellucid.data.pairs import Splits
from pellucid.system.files import read_file, remove_temporary, write_atomically
from pellucid.tasks import Task
from pellucid.training.events import Ended, Event, Listener, Started, Stepped
from pellucid.training.run import read_metrics

FILM, FRAME = "film", "step-{:08d}.json"
FORMAT = 2
LARGEST = 400_000
"""Bytes that the arrays of a frame take at most: 40 of them make a page of 16 MB."""
COARSE = (PRECISIONS[-1], Precision(8, 8, 8, 8))
"""Bits of a frame's numbers: the first that fit."""
CHANGING = ("loss", "maps", "steps", "tree", "own")
"""The fields of a record that differ from frame to frame."""
SHOWN = {"title", "model", "notes", "korean", "opens", "source", "target", "off", *CHANGING}
"""The fields of a record that a frame keeps."""

_log = logging.getLogger(__name__)


def due(step: int) -> bool:
    """Return whether a step has a frame: 0, each doubling up to 16, then three a doubling.

    Losses fall about evenly in log step, and so do maps change. The series does not depend on where
    training ends, which a resumed run may move: 24 frames for 1,200 steps, 36 for 20,000.

    >>> [step for step in range(200) if due(step)]
    [0, 1, 2, 4, 8, 16, 20, 25, 32, 40, 51, 64, 81, 102, 128, 161]
    """
    if step < 1:
        return step == 0
    third = round(3 * math.log2(step))
    return step == round(2 ** (third / 3)) and (step > 16 or third % 3 == 0)


def filming(
    run: Path, text: str | None, answer: str | None = None, *, resume: bool = False
) -> Callable[[Task, Splits], Listener] | None:
    """Return a factory of the listener that films a text during a run; None without a text.

    A resumed run goes on with its film. Without `answer` it is that of the data; a decoder alone
    reads the text itself. Raises `UsageError` for another text than a resumed run's, or an answer
    without a text.
    """
    if resume and (kept := frames(run)):
        film = _read(kept[-1])
        if text not in (None, film["text"]) or answer not in (None, film["answer"]):
            raise UsageError(
                f"{run / FILM} is of {film['text']!r}: leave `film` out to go on with it, or "
                "delete that folder"
            )
        text, answer = film["text"], film["answer"]
    if text is None:
        if answer is not None:
            raise UsageError("`film_answer` is the answer of a text: give that with `film`")
        return None
    return lambda task, pairs: Camera(run / FILM, task, pairs, text, answer)


class Camera:
    """A listener of a run that writes the frames of its film.

    It only reads the model, so that training computes the same bits as without it. Raises
    `UserError`, before anything is written, for a text that does not fit the model or whose answer
    is not known, and for frames that would be too large.
    """

    def __init__(
        self, folder: Path, task: Task, pairs: Splits, text: str, answer: str | None
    ) -> None:
        self.folder, self.text = folder, text
        self.answer = _answer(task, pairs, text, answer)
        self._task = task
        record = self._record()
        fitting = [precision for precision in COARSE if precision.size(record) < LARGEST]
        if not fitting:
            size = COARSE[-1].size(record) / 1e6
            raise UserError(
                f"{text!r}: every frame of its film would take {size:.1f} MB, and at most "
                f"{LARGEST / 1e6} fit into a page; film a shorter text"
            )
        self._precision = fitting[0]

    def __call__(self, event: Event) -> None:
        """Write a frame where one is due, and at the end; a resumed run drops later ones."""
        path = self.folder / FRAME.format(event.step)
        if isinstance(event, Started):
            self.folder.mkdir(exist_ok=True)
            remove_temporary(self.folder, "step-*")
            for later in frames(self.folder.parent):
                if later >= path and (later > path or event.step == 0):
                    later.unlink()
            if not frames(self.folder.parent):
                self._write(event, path)
        elif (isinstance(event, Stepped) and due(event.step)) or (
            isinstance(event, Ended) and not path.exists()
        ):
            self._write(event, path)

    def _write(self, event: Event, path: Path) -> None:
        try:
            record = as_json(self._record(), precision=self._precision)
            shown = {name: value for name, value in record.items() if name in SHOWN}
            content = dumps(
                {
                    "format": FORMAT,
                    "step": event.step,
                    "epoch": event.epoch,
                    "text": self.text,
                    "answer": self.answer,
                    "record": shown,
                }
            )
        except (UserError, ValueError) as error:  # training says itself when it diverges
            _log.warning("the film has no frame of step %d: %s", event.step, error)
            return
        write_atomically(path, content.encode())

    def _record(self) -> Record:
        task, source, target = self._task, self.text, self.answer
        if task.kind == "continue" and target is None:
            source, target = "", self.text
        search = getattr(task, "search", None)
        if search is not None:  # an untrained model repeats itself to the last position
            longest = 2 * len(task.target.encode(target or "")) + 2
            search = replace(search, beam=1, best=1, max_length=min(search.max_length, longest))
        record = attention(task, source, target, search=search, whole=False).record
        maps = tuple(replace(m, dqueries=None, dkeys=None) for m in record.maps)
        return replace(record, maps=maps)


def _answer(task: Task, pairs: Splits, text: str, answer: str | None) -> str | None:
    """Return the answer that every frame has; None where the text itself is predicted."""
    if task.name not in TRACES:
        raise UsageError(f"`film` shows attention, which the page has not for a {task.name}")
    if answer is not None or task.kind == "continue":
        return answer
    if task.kind == "fill":
        if MASK in text:
            raise UsageError(f"{text!r}: give a token for each {MASK} with `film_answer`")
        return None
    for pair in (*pairs.train, *pairs.valid, *pairs.test):
        if pair.source == text:
            return pair.target
    raise UsageError(
        f"{text!r} is not in the data, so that its answer is not known: give one with "
        "`film_answer`, or film another text"
    )


def frames(run: Path) -> list[Path]:
    """Return the files of a run's film in the order of its steps; none without a film."""
    return sorted((run / FILM).glob("step-*.json"))


def film_text(run: Path) -> str:
    """Return the text that a run's film is of."""
    return str(_read(frames(run)[-1])["text"])


def film_page(
    run: Path, language: Language | None = None, model: Mapping[str, Any] | None = None
) -> str:
    """Return the page of a run's film: that of its last frame, and a slider through all.

    Above it are the losses that the run has recorded so far. Raises `UserError` for a frame or a
    metrics.jsonl that is damaged.
    """
    film = [_read(path) for path in frames(run)]
    last = film[-1]["record"]
    opened = {"format": PAGE, "language": language, **last, "code": code()}
    opened["off"] = max(frame["record"]["off"] for frame in film)
    metrics = read_metrics(run)
    losses = {
        name: [[each["step"], each["loss"]] for each in metrics if each["event"] == event]
        for name, event in (("training", "trained"), ("held_out", "validated"))
    }
    losses["held_out"] = [each for each in losses["held_out"] if each[1] is not None]
    shots = [
        {
            "step": frame["step"],
            "epoch": frame["epoch"],
            "record": {name: frame["record"][name] for name in CHANGING},
        }
        for frame in film
    ]
    return filled(last["title"], dumps(opened), film={"frames": shots, **losses}, run=model)


def _read(path: Path) -> dict[str, Any]:
    """Return a frame. Raises `UserError` for a file that is damaged or another version's."""
    try:
        frame = json.loads(read_file(path))
        if frame["format"] == FORMAT and frame["record"].keys() >= SHOWN:
            return dict(frame)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path}: not a frame that this Pellucid can read; delete it")
