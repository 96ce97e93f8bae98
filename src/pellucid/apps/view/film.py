"""The film of a run: its attention on one text at some steps of training (`due`).

A run writes one file per frame, film/step-00000128.json: the record of the text as the HTML page
reads it. The expected answer is fed to the decoder (teacher forcing), so that all frames have the
same rows. Each frame also has the answer that the model would generate at that step.
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
from pellucid.apps.view.trace import attention
from pellucid.core.errors import UsageError, UserError
from pellucid.data.pairs import Splits
from pellucid.system.files import read_file, remove_temporary, write_atomically
from pellucid.tasks import Task
from pellucid.tasks.masked_lm import MASK
from pellucid.training.events import Ended, Event, Listener, Started, Stepped
from pellucid.training.run import read_metrics

FILM, FRAME = "film", "step-{:08d}.json"
FORMAT = 2
LARGEST = 400_000
"""The most bytes for the arrays of one frame: 40 frames make a page of 16 MB."""
COARSE = (PRECISIONS[-1], Precision(8, 8, 8, 8))
"""Precisions to try for a frame, finest first; the first that fits `LARGEST` is used."""
CHANGING = ("loss", "maps", "steps", "tree", "own")
"""The fields of a record that differ from frame to frame."""
SHOWN = {"title", "model", "notes", "korean", "opens", "source", "target", "off", *CHANGING}
"""The fields of a record that a frame keeps."""

_log = logging.getLogger(__name__)


def due(step: int) -> bool:
    """Return whether to record a frame at this step.

    Frames are at steps 0, 1, 2, 4, 8 and 16, then three per doubling. They are evenly spaced in
    log(step) because losses and attention maps change about evenly in it. The steps do not depend
    on the length of the run, because a resumed run may be longer. 1,200 steps have 24 frames,
    20,000 steps have 36.

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
    """Return a function that makes a run's `Camera`, or None without a text to film.

    A resumed run continues the film in its folder, with the same text. Without `answer` the answer
    is looked up in the data. A causal language model needs none, nor a masked one for a text
    without [MASK]: they predict the text itself. Raises `UsageError` for a text or an answer that
    differs from the resumed film, and for an answer without a text; `UserError` for a damaged frame
    of the resumed film.
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
    """Training listener that writes the frames of a film.

    It only reads the model: training computes the same bits with and without it. The constructor
    writes nothing. It raises `UserError` for a text that does not fit the model, a text without a
    known answer, and frames that would be too large.
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
        """Write a frame if one is `due`, at the end, and at the start of a film without frames.

        When a run starts, the frames of later steps are deleted: those steps run again. A run that
        starts at step 0 deletes all. If the numbers of the model are not finite, a warning is
        logged and the frame is left out.
        """
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
    """Return the answer to feed the decoder; None if the text itself is predicted.

    Raises `UsageError` for an unknown answer.
    """
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
    """Return the paths of a run's frames by step; an empty list if it has no film."""
    return sorted((run / FILM).glob("step-*.json"))


def film_text(run: Path) -> str:
    """Return the text that a run's film shows. The run must have frames.

    Raises `UserError` if the last frame is damaged.
    """
    return str(_read(frames(run)[-1])["text"])


def film_page(
    run: Path, language: Language | None = None, model: Mapping[str, Any] | None = None
) -> str:
    """Return the HTML page of a run's film: the last frame, and a slider over all.

    The run must have frames. Above the frame is the loss curve so far. `model`: description of the
    trained model (`runnable`), for a page that computes. Raises `UserError` for a damaged frame or
    metrics.jsonl.
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
    """Read a frame. Raises `UserError` if it is damaged or of another format version."""
    try:
        frame = json.loads(read_file(path))
        if frame["format"] == FORMAT and frame["record"].keys() >= SHOWN:
            return dict(frame)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path}: not a frame that this Pellucid can read; delete it")
