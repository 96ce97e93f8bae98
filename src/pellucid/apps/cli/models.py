"""`pellucid models`: list the trained models that come with Pellucid, with scores."""

import re

from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.language import tr
from pellucid.tasks.folder import CARD, folder_size, shipped_models
from pellucid.training.config import load_recipe


def models() -> int:
    """List the trained models that come with Pellucid; a name can be used in place of a folder.

    Each was trained by the recipe of its name and stored in int8; its folder has a card with data,
    licence and settings.
    """
    rows = table(tr("model"), tr("size"), tr("held out"), tr("description"))
    for name, folder in shipped_models().items():
        card = (folder / CARD).read_text(encoding="utf-8")
        scores = card.partition("## Scores")[2].partition("\n## ")[0]
        found = re.findall(r"^\| (PER|WER|accuracy|F1) \| ([\d.]+ ?%)", scores, re.MULTILINE)
        shown = ", ".join(f"{score} {value}" for score, value in found)
        rows.add_row(name, folder_size(folder), shown, tr(load_recipe(name).description))
    Output().print(rows)
    return 0
