"""`pellucid demo`: see pellucid/demo.py."""

from __future__ import annotations

import tyro

from pellucid.demo import demo


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(demo, prog="pellucid demo", args=arguments)
