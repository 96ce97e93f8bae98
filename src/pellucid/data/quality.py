"""Find suspicious pairs.

`pellucid data` counts them, and the setting `data.leave_out` leaves them out of the files read.
"""

import logging
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from pellucid.data.pairs import TextPair
from pellucid.system.language import plural

_log = logging.getLogger(__name__)

MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[a-z]+|#\d+);")
PLACEHOLDER = re.compile(
    r"%(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?[a-zA-Z]\b"  # printf: %s, %1$d, %.2f
    r"|\$?\{[^{}\s]*\}|\$[A-Za-z_]\w*"  # {name}, ${name}, $name
)
FAR = 5
"""A target is suspicious if its length relative to its source is more than this many times the
median, or less than the median divided by this."""
SHOWN = 5

FAULTS: dict[str, tuple[str, Callable[[TextPair], bool]]] = {
    "copies": ("the target is the source", lambda pair: pair.source in pair.targets),
    "markup": (
        "tags or entities, such as <b> or &amp;",
        lambda pair: any(map(MARKUP.search, (pair.source, *pair.targets))),
    ),
    "placeholders": (
        "other placeholders, such as %s or {name}, on one side than on the other",
        lambda pair: any(_placeholders(t) != _placeholders(pair.source) for t in pair.targets),
    ),
}
"""Faults of a single pair: description, and test."""
LATER = {
    "duplicates": "the same pair as an earlier one",
    "lengths": f"{FAR} times as long for its source as the median target, or as short",
}
"""Faults that show only in comparison with other pairs."""


def faults(pairs: Sequence[TextPair]) -> list[list[str]]:
    """Return, for each pair, the names of its faults in `FAULTS` and `LATER`.

    Every pair must have a target.

    >>> faults([TextPair("OK", ("OK",)), TextPair("a %d", ("b",)), TextPair("a %d", ("b",))])
    [['copies'], ['placeholders'], ['placeholders', 'duplicates']]
    """
    ratios = np.array([len(pair.target) / max(len(pair.source), 1) for pair in pairs])
    middle = float(np.median(ratios)) if len(ratios) else 1.0
    seen: set[TextPair] = set()
    found = []
    for pair, ratio in zip(pairs, ratios.tolist(), strict=True):
        names = [name for name, (_, test) in FAULTS.items() if test(pair)]
        if pair in seen:
            names.append("duplicates")
        if not middle / FAR <= ratio <= middle * FAR:
            names.append("lengths")
        seen.add(pair)
        found.append(names)
    return found


def _placeholders(text: str) -> list[str]:
    """Return the placeholders in a text, sorted."""
    return sorted(PLACEHOLDER.findall(text))


def is_empty(pair: TextPair) -> bool:
    """Return whether a pair has no target, or a blank one, or a blank column of its source.

    >>> is_empty(TextPair("a\\t", ("b",))), is_empty(TextPair("a", ("b",)))
    (True, False)
    """
    texts = [*pair.source.split("\t"), *pair.targets]
    return not pair.targets or not all(text.strip() for text in texts)


def kept(
    path: Path,
    lines: Sequence[int],
    pairs: Sequence[TextPair],
    leave_out: Collection[str] = (),
) -> tuple[TextPair, ...]:
    """Return the pairs without an empty text (`is_empty`), and without the faults in `leave_out`.

    For each reason a warning counts the pairs left out and names their first lines; a pair with
    several faults counts for the first. path, lines: the file, and the line of each pair, in these
    warnings.
    """
    left: dict[str, list[int]] = {}
    chosen, numbers = [], []
    for line, pair in zip(lines, pairs, strict=True):
        if is_empty(pair):
            left.setdefault("empty", []).append(line)
        else:
            chosen.append(pair)
            numbers.append(line)
    if leave_out:
        every = list(zip(numbers, chosen, faults(chosen), strict=True))
        chosen = []
        for line, pair, names in every:
            if wrong := [name for name in names if name in leave_out]:
                left.setdefault(wrong[0], []).append(line)
            else:
                chosen.append(pair)
    for name, where in left.items():
        pairs_left = f"{len(where):,} {plural(len(where), 'pair')}"
        _log.warning("%s: left out %s (%s): %s", path, pairs_left, name, some(where))
    return tuple(chosen)


def some(lines: Sequence[int]) -> str:
    """Format the first of several line numbers for a message.

    >>> some([3, 5]), some(range(1, 9))
    ('lines 3, 5', 'lines 1, 2, 3, 4, 5, …')
    """
    more = ", …" if len(lines) > SHOWN else ""
    return f"{plural(len(lines), 'line')} {', '.join(map(str, lines[:SHOWN]))}{more}"
