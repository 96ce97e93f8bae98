"""`pellucid recipes`: what can be trained by name."""

from __future__ import annotations

from rich.table import Table

from pellucid.cli.console import Output
from pellucid.cli.language import tr
from pellucid.training.config import load_recipe, recipe_names


def recipes() -> int:
    """List the recipes that come with Pellucid; `pellucid train NAME` trains one."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (tr("recipe"), tr("data"), tr("description")):
        table.add_column(head, overflow="fold")
    for name in recipe_names():
        recipe = load_recipe(name)
        table.add_row(name, recipe.data.corpus or tr("your own"), tr(recipe.description))
    Output().print(table)
    return 0
