"""The server's metrics, in Prometheus' text format (version 0.0.4). Their names begin with `headwater_`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.serve.served import Served

# Upper ends of the ranges into which seconds are counted; `bisect_left` finds the range.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LABELS = ("path", "model", "status")
_Value = tuple[dict[str, Any], float]  # labels and a number


class Metrics:
    """Counters of one server, by route and model. Only the event loop may change them."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # (route, model, status)
        self.active: Counter[tuple[str, str]] = Counter()  # that have begun and not ended
        self.prompt_tokens: Counter[tuple[str, str]] = Counter()
        self.generated_tokens: Counter[tuple[str, str]] = Counter()
        self.disconnected = 0
        self.open = 0
        # Seconds to the end of an answer, and to a first token: how many in which range, and their sum.
        self.seconds: Counter[tuple[str, str, int]] = Counter()
        self.seconds_sum: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.first_token: Counter[tuple[str, str, int]] = Counter()
        self.first_token_sum: defaultdict[tuple[str, str], float] = defaultdict(float)

    def text(self, models: Iterable[Served]) -> str:
        """Return all metrics in the text format."""
        return "\n".join([*self._of_requests(), *_of_models(list(models))]) + "\n"

    def _of_requests(self) -> Iterator[str]:
        """Yield the lines of the counters, by route and model."""

        counters: list[tuple[str, str, str, Mapping[tuple[Any, ...], int]]] = [
            ("requests_total", "counter", "Requests answered.", self.requests),
            ("disconnected_total", "counter", "Requests whose client left.", {(): self.disconnected}),
            ("open_requests", "gauge", "Requests open.", {(): self.open}),
            ("active_requests", "gauge", "Requests of a model that have begun.", self.active),
            ("prompt_tokens_total", "counter", "Tokens read.", self.prompt_tokens),
            ("generated_tokens_total", "counter", "Tokens generated.", self.generated_tokens),
        ]
        for name, kind, about, counts in counters:
            labelled = ((dict(zip(_LABELS, key, strict=False)), counts[key]) for key in sorted(counts))
            yield from _family(name, kind, about, labelled)
        yield from _histogram("request_seconds", "Time to the end of an answer.", self.seconds, self.seconds_sum)
        yield from _histogram("first_token_seconds", "To a first token.", self.first_token, self.first_token_sum)


def _of_models(models: Sequence[Served]) -> Iterator[str]:
    """Yield the lines about the threads of each model."""
    engines = [m for m in models if m.lm.config.is_causal]

    def by_thread(engine: Callable[[Served], int], jobs: Callable[[Served], int]) -> list[_Value]:
        generating: list[_Value] = [({"model": m.name, "thread": "engine"}, engine(m)) for m in engines]
        return generating + [({"model": m.name, "thread": "compute"}, jobs(m)) for m in models]

    running = by_thread(lambda m: m.worker.held - m.worker.waiting, lambda m: min(1, m.jobs))
    yield from _family("running", "gauge", "Continuations in a slot, and jobs that run.", running)
    waiting = by_thread(lambda m: m.worker.waiting, lambda m: max(0, m.jobs - 1))
    yield from _family("waiting", "gauge", "Continuations and jobs queued.", waiting)
    rejected = by_thread(lambda m: m.worker.rejected, lambda m: m.rejected)
    yield from _family("rejected_total", "counter", "Requests that found the queue full.", rejected)
    alive: list[_Value] = [({"model": m.name}, int(m.worker.alive)) for m in engines]
    yield from _family("engine_alive", "gauge", "Whether the engine's thread runs.", alive)
    stale: list[_Value] = [({"model": m.name}, int(bool(m.stale))) for m in models]
    yield from _family("model_stale", "gauge", "Whether the changed folder cannot be opened again.", stale)
    opened: list[_Value] = [({"model": m.name}, m.created) for m in models]
    yield from _family("model_opened_seconds", "gauge", "When the model was opened, in Unix time.", opened)


def _family(name: str, kind: str, about: str, values: Iterable[_Value]) -> Iterator[str]:
    """Yield the lines of one metric; each value has labels."""
    yield f"# HELP headwater_{name} {about}"
    yield f"# TYPE headwater_{name} {kind}"
    for labels, value in values:
        yield _line(name, labels, value)


def _histogram(
    name: str, about: str, counts: Counter[tuple[str, str, int]], sums: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    """Yield the lines of a histogram by route and model: how many are in each range or below, and their sum."""
    yield from _family(name, "histogram", about, [])
    for (path, model), seconds in sorted(sums.items()):
        labels, total = {"path": path, "model": model}, 0
        for number, bound in enumerate((*BOUNDS, "+Inf")):
            total += counts[path, model, number]
            yield _line(f"{name}_bucket", {**labels, "le": str(bound)}, total)
        yield _line(f"{name}_sum", labels, f"{seconds:.6f}")
        yield _line(f"{name}_count", labels, total)


def _line(name: str, labels: Mapping[str, Any], value: float | str) -> str:
    written = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
    return f"headwater_{name}{{{written}}} {value}" if labels else f"headwater_{name} {value}"


def _quoted(label: Any) -> str:
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
