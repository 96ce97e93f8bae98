"""`pellucid recipes`: list the recipes that can be trained by name."""

from pathlib import Path

from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.language import tr
from pellucid.system.files import read_toml
from pellucid.training.config import load_recipe, recipe_names

MINUTES = read_toml(Path(__file__).with_name("minutes.toml"))
"""Measured training times, in minutes."""


def recipes() -> int:
    """List the recipes that come with Pellucid; `pellucid train NAME` trains one."""
    caption = tr(
        "Minutes: the recipe's limit (≤), or as measured on one or two cores of an AMD EPYC "
        "server, some of them shared with other work."
    )
    heads = (tr("recipe"), tr("minutes"), tr("data"), tr("description"))
    rows = table(*heads, caption=caption, caption_justify="left")
    for name in recipe_names():
        recipe = load_recipe(name)
        limit = f"≤ {recipe.training.minutes:g}" if recipe.training.minutes else ""
        minutes, corpus = str(MINUTES.get(name, limit)), recipe.data.corpus or tr("your own")
        rows.add_row(name, minutes, corpus, tr(recipe.description))
    Output().print(rows)
    return 0
