"""Counters in Prometheus's text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Histogram:
    """How long something took, by path."""

    def __init__(self) -> None:
        self._buckets: dict[str, Counter[float]] = {}
        self._sums: Counter[str] = Counter()

    def add(self, path: str, seconds: float) -> None:
        """Count one."""
        bound = next((bound for bound in BOUNDS if seconds <= bound), float("inf"))
        self._buckets.setdefault(path, Counter())[bound] += 1
        self._sums[path] += seconds  # type: ignore[assignment]

    def lines(self, name: str) -> list[str]:
        """Return the lines of /metrics."""
        lines = []
        for path, buckets in self._buckets.items():
            below = 0
            for bound in (*BOUNDS, float("inf")):
                below += buckets[bound]
                written = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'{name}_bucket{{path="{path}",le="{written}"}} {below}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._sums[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {below}')
        return lines


class Metrics:
    """What the server has done; only the event loop writes it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds, self.first_token = Histogram(), Histogram()

    def text(self, worker: Mapping[str, tuple[str, float]]) -> str:
        """Return the page; `worker` has further values: name -> (type, value)."""
        lines = ["# TYPE pellucid_requests_total counter"]
        lines += [
            f'pellucid_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in self.requests.items()
        ]
        for name, histogram in (
            ("pellucid_request_seconds", self.seconds),
            ("pellucid_first_token_seconds", self.first_token),
        ):
            lines += [f"# TYPE {name} histogram", *histogram.lines(name)]
        for name, (kind, value) in worker.items():
            lines += [f"# TYPE {name} {kind}", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
