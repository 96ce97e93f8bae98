"""`pellucid plot PICTURE`: draw the curves of runs, or a picture of the articles."""

from pathlib import Path

from pellucid.apps.cli.view import shown
from pellucid.apps.teach.pictures import PICTURES, curves, save
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import check_known
from pellucid.system.language import chosen_language
from pellucid.training.run import METRICS, read_metrics

CURVES = "curves"
FORMATS = (".svg", ".png", ".pdf")


def picture_file(path: Path, option: str) -> Path:
    """Return the file that an option names; make its folder. Raises `UsageError` for its suffix."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{option} must end in {', '.join(FORMATS)}; got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def plot(
    picture: str = "",
    runs: tuple[Path, ...] = (),
    /,
    *,
    output: Path | None = None,
) -> int:
    """Draw the learning curves of runs, or one of the articles' pictures.

    curves: the losses, and other held-out scores, of the runs named after it. The others are drawn
    from numbers computed here.
    softmax: weights over 10 keys with and without the scale. activations: ReLU, leaky ReLU, SiLU,
    GELU and their derivatives. positions: the sinusoidal table. variance: Var[q·k] against d_k,
    the largest weight against the number of keys. Needs matplotlib.

    Args:
        picture: curves, softmax, activations, positions or variance.
        runs: The run folders of curves.
        output: File to write, .svg, .png or .pdf; unset: PICTURE.svg here.
    """
    check_known("picture", picture, (CURVES, *PICTURES))
    if (picture == CURVES) != bool(runs):
        raise UsageError(
            "which runs? Use `pellucid plot curves RUN ...`"
            if picture == CURVES
            else f"{picture} is not drawn from runs: leave {runs[0]} out"
        )
    path = picture_file(output or Path(f"{picture}.svg"), "--output")
    language = chosen_language()
    if picture == CURVES:
        records = {str(run): read_metrics(run) for run in runs}
        if empty := [run for run, lines in records.items() if not lines]:
            if (Path(empty[0]) / METRICS).exists():
                raise UserError(f"{empty[0]}: its {METRICS} has no records yet")
            raise UserError(f"{empty[0]}: there is no run here with a {METRICS}")
        figure = curves(records, language)
    else:
        figure = PICTURES[picture](language)
    save(figure, path)
    return shown([path], [], "", open=False)
