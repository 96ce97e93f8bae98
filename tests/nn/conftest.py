from __future__ import annotations

from typing import Any

from tests.nn.draws import Counts

ARGUMENT_COUNTS: dict[str, Counts] = {}
"""How many draws each argument value got, by class; filled by the random comparisons."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for title, counts in ARGUMENT_COUNTS.items():
        terminalreporter.write_sep("-", title)
        for argument, values in counts.items():
            listed = ", ".join(f"{value} {count}" for value, count in sorted(values.items()))
            terminalreporter.write_line(f"{argument}: {listed}")
