"""`pellucid plot PICTURE`: draw what the articles draw."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import chosen_language
from pellucid.apps.teach.pictures import PICTURES, save
from pellucid.core.errors import UsageError
from pellucid.core.settings import nearest

FORMATS = (".svg", ".png", ".pdf")


def plot(
    picture: str = "",
    /,
    *,
    output: Path | None = None,
    lang: Literal["auto", "en", "ko"] = "auto",
) -> int:
    """Draw one of the articles' pictures from numbers computed here.

    softmax: weights over 10 keys with and without the scale. activations: ReLU, leaky ReLU, SiLU,
    GELU and their derivatives. positions: the sinusoidal table. variance: Var[q·k] against d_k,
    the largest weight against the number of keys. Needs matplotlib.

    Args:
        picture: softmax, activations, positions or variance.
        output: File to write, .svg, .png or .pdf; unset: PICTURE.svg here.
        lang: Language of titles and labels; auto: the locale's.
    """
    if picture not in PICTURES:
        wrong = (
            f"no picture {picture!r}{nearest(picture, PICTURES)}" if picture else "no picture given"
        )
        raise UsageError(f"{wrong}; there are: {', '.join(PICTURES)}")
    path = output or Path(f"{picture}.svg")
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output must end in {', '.join(FORMATS)}; got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    save(PICTURES[picture](chosen_language() if lang == "auto" else lang), path)
    Output().print(f"wrote {path}", markup=False, soft_wrap=True)
    return 0
