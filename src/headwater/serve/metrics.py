"""The server's metrics, in Prometheus' text format. Their names begin with `headwater_`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.metrics_core import CounterMetricFamily

if TYPE_CHECKING:
    from headwater.serve.served import Served

# Upper ends of the ranges into which seconds are counted.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters of one server, by route and model, and the state of its models' threads."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self._models, self._registry = models, CollectorRegistry()
        of_model = ["path", "model"]
        self.open = 0
        self.requests = self._counter("requests", "Requests answered.", [*of_model, "status"])
        self.key_requests = self._counter("key_requests", "Requests by the name of their API key.", ["key"])
        self.disconnected = self._counter("disconnected", "Requests whose client left.", [])
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens read.", of_model)
        self.generated_tokens = self._counter("generated_tokens", "Tokens generated.", of_model)
        self.active = Gauge(
            "headwater_active_requests", "Requests of a model that have begun.", of_model, registry=self._registry
        )
        self.seconds = self._histogram("request_seconds", "Time to the end of an answer.")
        self.first_token = self._histogram("first_token_seconds", "Time to a first token.")

    def _counter(self, name: str, about: str, labels: list[str]) -> Counter:
        return Counter(f"headwater_{name}", about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"headwater_{name}", about, ["path", "model"], registry=self._registry, buckets=_SECONDS)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric; see `prometheus_client`. The times at which counters were made are left out."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield GaugeMetricFamily("headwater_open_requests", "Requests open.", self.open)
        yield from self._of_threads()
        yield self._of_models(
            "engine_alive", "Whether the engine's thread runs.", lambda m: m.alive if m.worker else None
        )
        yield self._of_models("model_stale", "Whether its folder cannot be opened.", lambda m: bool(m.stale))
        yield self._of_models("model_opened_seconds", "Unix time when the model was opened.", lambda m: m.created)

    def _of_threads(self) -> Iterator[Metric]:
        """Yield the work of each model's threads: continuations of its engine, and jobs of its second thread."""
        labels = ["model", "thread"]
        running = GaugeMetricFamily("headwater_running", "Continuations and jobs that run.", labels=labels)
        waiting = GaugeMetricFamily("headwater_waiting", "Continuations and jobs that wait.", labels=labels)
        rejected = CounterMetricFamily("headwater_rejected", "Requests that got 429.", labels=labels)
        for name, model in self._models.items():
            if (worker := model.worker) is not None:
                running.add_metric([name, "engine"], worker.held - worker.waiting)
                waiting.add_metric([name, "engine"], worker.waiting)
                rejected.add_metric([name, "engine"], worker.rejected)
            running.add_metric([name, "compute"], min(1, model.jobs))
            waiting.add_metric([name, "compute"], max(0, model.jobs - 1))
            rejected.add_metric([name, "compute"], model.rejected)
        yield from (running, waiting, rejected)

    def _of_models(self, name: str, about: str, value: Callable[[Served], float | None]) -> Metric:
        """Return a gauge of the models whose value is not None."""
        family = GaugeMetricFamily(f"headwater_{name}", about, labels=["model"])
        for model in self._models.values():
            if (number := value(model)) is not None:
                family.add_metric([model.name], number)
        return family
