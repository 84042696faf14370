"""What the server counts, in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from headwater.serve.served import Served

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Seconds, counted in buckets."""

    def __init__(self) -> None:
        self._counts, self._sum = [0] * (len(_BOUNDS) + 1), 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterable[str]:
        """As Prometheus reads it."""
        total = 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Counters of one server; touched by the event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (path, status)
        self.prompt_tokens: Counter[str] = Counter()
        self.generated_tokens: Counter[str] = Counter()
        self.disconnected = 0
        self.open = 0
        self.seconds, self.first_token = Histogram(), Histogram()

    def text(self, models: Iterable[Served]) -> str:
        """Everything, one line a value."""
        models = list(models)
        lines: list[str] = []

        def family(name: str, kind: str, help_text: str, values: Iterable[str]) -> None:
            lines.extend([f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *values])

        def by_model(name: str, kind: str, help_text: str, values: dict[str, int]) -> None:
            family(name, kind, help_text, [f'{name}{{model="{_quoted(m)}"}} {v}' for m, v in values.items()])

        name = "headwater_requests_total"
        answered = [f'{name}{{path="{p}",status="{s}"}} {c}' for (p, s), c in sorted(self.requests.items())]
        family(name, "counter", "Requests answered.", answered)
        name = "headwater_disconnected_total"
        family(name, "counter", "Requests whose client left.", [f"{name} {self.disconnected}"])
        family("headwater_open_requests", "gauge", "Requests open.", [f"headwater_open_requests {self.open}"])
        tokens = {m.name: self.prompt_tokens[m.name] for m in models}
        by_model("headwater_prompt_tokens_total", "counter", "Tokens of prompts.", tokens)
        tokens = {m.name: self.generated_tokens[m.name] for m in models}
        by_model("headwater_generated_tokens_total", "counter", "Tokens generated.", tokens)
        running = {m.name: m.worker.held - m.worker.waiting for m in models}
        by_model("headwater_running", "gauge", "Continuations in a slot.", running)
        by_model("headwater_waiting", "gauge", "Continuations queued.", {m.name: m.worker.waiting for m in models})
        rejected = {m.name: m.worker.rejected for m in models}
        by_model("headwater_rejected_total", "counter", "Requests that found the queue full.", rejected)
        name = "headwater_request_seconds"
        family(name, "histogram", "Time to the end of an answer.", self.seconds.lines(name))
        name = "headwater_first_token_seconds"
        family(name, "histogram", "Time to the first token.", self.first_token.lines(name))
        return "\n".join(lines) + "\n"


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
