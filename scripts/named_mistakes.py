"""Measure for how many wrong answers to the exercises the mistake is named.

    python scripts/named_mistakes.py          a row of docs/exercises.md for each set
    python scripts/named_mistakes.py --show   and the message for each answer

The answers are in tests/apps/teach: ordinary_mistakes.toml, and learners_mistakes.toml and
another_hand.toml with their sets. An answer is *named* if the message on its first wrong result
describes the mistake, or if its error comes with advice; *told* if the message only states an
invariant that the result violates, or a wrong shape.
"""

from __future__ import annotations

import argparse
import textwrap
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.apps.teach.exercise import advice, diagnose, read

FOLDER = Path(__file__).parents[1] / "tests" / "apps" / "teach"


def sets() -> dict[str, dict[str, dict[str, str]]]:
    """Return the wrong answers by set, exercise and name."""
    ordinary = tomllib.loads((FOLDER / "ordinary_mistakes.toml").read_text(encoding="utf-8"))
    learners = tomllib.loads((FOLDER / "learners_mistakes.toml").read_text(encoding="utf-8"))
    others = tomllib.loads((FOLDER / "another_hand.toml").read_text(encoding="utf-8"))
    return {"ordinary": ordinary, **learners, **others}


def answered(exercise: str, body: str) -> tuple[str, str]:
    """Return the kind of message that a wrong answer gets, and its text."""
    scope: dict[str, Any] = {"np": np}
    arguments = ", ".join(read(exercise)["arguments"])
    exec(f"def f({arguments}):\n{textwrap.indent(body.strip(), '    ')}", scope)
    try:
        wrong = [result for result in diagnose(exercise, scope["f"]) if not result.passed]
    except Exception as error:
        says = advice(str(error))
        about = f"{type(error).__name__}: {error}"
        return ("error, no advice", about) if says is None else ("named", f"{about} {says.en}")
    if not wrong:
        return "accepted", ""
    first = wrong[0]
    if first.mistake is None:
        return ("shape", "") if first.yours.shape != first.right.shape else ("none", "")
    rules = [*read(exercise).get("invariants", {}).get(first.name, ()), *read("common")["last"]]
    starts = tuple(rule["says"][0].partition("{}")[0] for rule in rules)
    kind = "told" if starts and first.mistake.en.startswith(starts) else "named"
    return kind, f"{first.name}: {first.mistake.en}"


def measured(bodies: dict[str, dict[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the message for each answer of a set."""
    return {
        (exercise, name): answered(exercise, body)
        for exercise, found in bodies.items()
        for name, body in found.items()
    }


def counted(found: dict[tuple[str, str], tuple[str, str]]) -> str:
    """Format a set's row of docs/exercises.md: all, named, told, neither, accepted."""
    kinds = Counter(kind for kind, _ in found.values())
    named, told, accepted = (kinds[kind] for kind in ("named", "told", "accepted"))
    neither = len(found) - named - told - accepted
    return f"| {len(found)} | {named} | {told} | {neither} | {accepted} |"


def main() -> None:
    """Print a row for each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print what is said of each")
    show = parser.parse_args().show
    for title, bodies in sets().items():
        found = measured(bodies)
        if show:
            for (exercise, name), (kind, says) in found.items():
                print(f"  {exercise} {name} [{kind}] {says}")
        print(title, counted(found), flush=True)


if __name__ == "__main__":
    main()
