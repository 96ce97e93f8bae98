"""`pellucid runs [FOLDER]`: compare runs by their settings and scores."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pellucid.apps.cli.console import Output, scores, table
from pellucid.apps.cli.language import encodable, tr
from pellucid.core.errors import UserError
from pellucid.core.settings import flat, to_mapping
from pellucid.training.config import RunConfig
from pellucid.training.run import CONFIG, read_metrics, read_settings

TICKS = "▁▂▃▄▅▆▇█"
WIDEST = 24  # of a curve
MOST = 8  # settings listed for a run
ENDS = ("trained", "ended")  # records with the time since training began
FOLLOW = ("description", "sha256", "source_vocab_size", "target_vocab_size")
"""Settings that follow from others, or that change nothing."""


def runs(folder: Path = Path("runs"), /) -> int:
    """Compare the runs in a folder: the settings that differ, the scores, the minutes.

    The scores are those of the best validation so far; the curve is the held-out loss at all of
    them. `pellucid plot curves RUN ...` draws the curves of some.

    Args:
        folder: A folder of run folders, or a run folder.
    """
    console = Output()
    console.print(compared(folder, console.encoding))
    return 0


def found(folder: Path) -> list[Path]:
    """Return the run folders in a folder, after the folder itself if it is one.

    Raises `UserError` if there is none.
    """
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    if runs := [path for path in (folder, *inside) if (path / CONFIG).is_file()]:
        return runs
    raise UserError(f"{folder}: there is no run here; `pellucid train` makes one")


def compared(folder: Path | str, encoding: str = "utf-8") -> Table:
    """Make a table of the runs in a folder; a notebook can display it.

    It shows the settings that differ, steps, minutes, best scores, and the curve of the held-out
    loss, which is left out if `encoding`, that of the output, lacks its characters. Raises
    `UserError` if there is no run.
    """
    runs = found(Path(folder))
    heads = (tr("run"), tr("settings that differ"), tr("steps"), tr("minutes"))
    made = table(*heads, tr("best held-out scores"), tr("loss"))
    for run, different in zip(runs, differences(runs), strict=True):
        records = read_metrics(run)
        seconds = [record["seconds"] for record in records if record["event"] in ENDS]
        validated = [record for record in records if record["event"] == "validated"]
        best = [scores(r["loss"], r["scores"]) for r in validated if r["best"]]
        curve = sparkline([r["loss"] for r in validated if r["loss"] is not None])
        made.add_row(
            escape(run.resolve().name),
            "\n".join(map(escape, different[:MOST] + ["..."] * (len(different) > MOST))),
            f"{max((record['step'] for record in records), default=0):,}",
            f"{max(seconds, default=0.0) / 60:.1f}",
            *(best[-1:] or [""]),
            encodable(curve, encoding, ""),
        )
    return made


def differences(folders: Sequence[Path]) -> Iterator[list[str]]:
    """Yield, for each run, the settings in which the runs differ, with its values.

    Empty values are left out. A setting that a run did not record, as version 0.1.0 left some out,
    has its default.
    """
    usual = flat(to_mapping(RunConfig()))
    found = [{**usual, **flat(read_settings(folder) or {})} for folder in folders]
    for settings in found:
        if settings["data.train"]:  # the user's files replace the corpus
            settings |= {"data.corpus": "", "data.split": ""}
    names = dict.fromkeys(name for settings in found for name in settings)
    named = [name for name in names if name.rpartition(".")[2] not in FOLLOW]
    other = [n for n in named if len({str(settings.get(n)) for settings in found}) > 1]
    for settings in found:
        given = [name for name in other if settings.get(name) not in (None, "", [])]
        yield [f"{name}={_short(settings[name])}" for name in given]


def _short(value: Any) -> str:
    """Format the value of a setting; files by their names."""
    return " ".join(Path(str(x)).name for x in value) if isinstance(value, list) else str(value)


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as a line of blocks; the lowest number is the lowest block.

    Of more than `WIDEST` numbers so many are drawn, evenly spaced.

    >>> sparkline([3.0, 2.0, 1.0, 1.5])
    '█▄▁▂'
    """
    if len(values) > WIDEST:
        values = [values[i * (len(values) - 1) // (WIDEST - 1)] for i in range(WIDEST)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    steps = [(value - low) / ((high - low) or 1.0) * (len(TICKS) - 1) for value in values]
    return "".join(TICKS[int(step)] for step in steps)
