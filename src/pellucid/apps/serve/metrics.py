"""What the server has done, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pellucid.apps.serve.worker import Worker

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Metrics:
    """Counters and histograms of one server, in a registry of its own."""

    def __init__(self, worker: Worker) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pellucid_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self.seconds, self.first_token = (
            Histogram(name, about, ("path",), buckets=BOUNDS, registry=self.registry)
            for name, about in (
                ("pellucid_request_seconds", "Time to answer a request."),
                ("pellucid_first_token_seconds", "Time to the first text of a streamed answer."),
            )
        )
        self.registry.register(_Generation(worker))


class _Generation(Collector):
    """The worker's own counts, read when they are asked for."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield the counts."""
        worker = self.worker
        yield CounterMetricFamily("pellucid_generated_tokens", "Tokens generated.", worker.tokens)
        yield GaugeMetricFamily("pellucid_running_rows", "Rows in the batches.", worker.running)
        yield GaugeMetricFamily("pellucid_waiting", "Inputs that wait.", worker.waiting)
