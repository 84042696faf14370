"""The server's metrics, in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

from headwater.serve.served import Served

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Histogram of durations in seconds."""

    def __init__(self) -> None:
        self._counts, self._sum = [0] * (len(_BOUNDS) + 1), 0.0

    def observe(self, seconds: float) -> None:
        """Add one duration."""
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Yield the lines of the text format. labels: `path="/",model="m"`."""
        total = 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """Counters of one server. Only the event loop may use it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # (path, model, status)
        self.prompt_tokens: Counter[str] = Counter()
        self.generated_tokens: Counter[str] = Counter()
        self.disconnected = 0
        self.open = 0
        self._seconds: defaultdict[str, Histogram] = defaultdict(Histogram)  # by labels
        self._first_token: defaultdict[str, Histogram] = defaultdict(Histogram)

    def answered(self, path: str, model: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests[path, model, status] += 1
        self._seconds[_labels(path=path, model=model)].observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """Add the time to a completion's first token."""
        self._first_token[_labels(model=model)].observe(seconds)

    def text(self, models: Iterable[Served]) -> str:
        """Return all metrics in the text format."""
        models = list(models)
        engines = [m for m in models if m.lm.config.is_causal]
        lines: list[str] = []

        def family(name: str, kind: str, help_text: str, values: Iterable[str]) -> None:
            lines.extend([f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *values])

        def by_model(name: str, kind: str, help_text: str, values: dict[str, int]) -> None:
            family(name, kind, help_text, [f"{name}{{{_labels(model=m)}}} {v}" for m, v in values.items()])

        name = "headwater_requests_total"
        answered = [
            f"{name}{{{_labels(path=p, model=m, status=str(s))}}} {c}"
            for (p, m, s), c in sorted(self.requests.items())
        ]
        family(name, "counter", "Requests answered.", answered)
        name = "headwater_disconnected_total"
        family(name, "counter", "Requests whose client left.", [f"{name} {self.disconnected}"])
        family("headwater_open_requests", "gauge", "Requests open.", [f"headwater_open_requests {self.open}"])
        tokens = {m.name: self.prompt_tokens[m.name] for m in models}
        by_model("headwater_prompt_tokens_total", "counter", "Tokens of prompts.", tokens)
        tokens = {m.name: self.generated_tokens[m.name] for m in models}
        by_model("headwater_generated_tokens_total", "counter", "Tokens generated.", tokens)
        running = {m.name: m.worker.held - m.worker.waiting for m in engines}
        by_model("headwater_running", "gauge", "Continuations in a slot.", running)
        waiting = {m.name: m.worker.waiting for m in engines}
        by_model("headwater_waiting", "gauge", "Continuations queued.", waiting)
        rejected = {m.name: m.worker.rejected for m in engines}
        by_model("headwater_rejected_total", "counter", "Requests that found the queue full.", rejected)
        alive = {m.name: int(m.worker.alive) for m in engines}
        by_model("headwater_engine_alive", "gauge", "Whether the engine's thread runs.", alive)
        histograms = {
            "headwater_request_seconds": ("Time to the end of an answer.", self._seconds),
            "headwater_first_token_seconds": ("Time to the first token.", self._first_token),
        }
        for name, (help_text, by_labels) in histograms.items():
            rows = [line for labels, values in sorted(by_labels.items()) for line in values.lines(name, labels)]
            family(name, "histogram", help_text, rows)
        return "\n".join(lines) + "\n"


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{_quoted(value)}"' for name, value in values.items())


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
