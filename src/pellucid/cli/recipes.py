"""`pellucid recipes`: what can be trained by name."""

from __future__ import annotations

import tyro
from rich.table import Table

from pellucid.cli.console import Output
from pellucid.training.config import load_recipe, recipe_names


def recipes() -> int:
    """List the recipes that come with Pellucid; `pellucid train NAME` takes one by name."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("recipe", "data", "what it is"):
        table.add_column(head, overflow="fold")
    for name in recipe_names():
        recipe = load_recipe(name)
        table.add_row(name, recipe.data.corpus, recipe.description)
    Output().print(table)
    return 0


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(recipes, prog="pellucid recipes", args=arguments)
