"""`pellucid worksheet NAME`: write a backward to compute on paper, and answers."""

from pathlib import Path

from pellucid.apps.cli.plot import picture_file
from pellucid.apps.cli.view import shown
from pellucid.apps.teach.worksheet import SHEETS, pages, write
from pellucid.core.errors import UsageError
from pellucid.core.settings import check_known
from pellucid.system.language import chosen_language


def worksheet(
    name: str = "",
    /,
    *,
    seed: int = 0,
    output: Path | None = None,
) -> int:
    """Write a worksheet: a backward to compute on paper, in small integers, and its answers.

    Every seed gives other numbers. The answers are on the second page of a PDF, or in a second
    picture. Needs matplotlib.

    Args:
        name: linear, softmax, layer_norm or attention.
        seed: Which sheet; the same number gives the same sheet.
        output: File to write, .pdf, .svg or .png; unset: NAME-SEED.pdf here.
    """
    check_known("worksheet", name, SHEETS)
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more; got {seed}")
    path = picture_file(output or Path(f"{name}-{seed}.pdf"), "--output")
    return shown(write(pages(name, seed, chosen_language()), path), [], "", open=False)
