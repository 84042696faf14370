"""The server's metrics, in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.serve.served import Served

# Upper ends of the ranges into which seconds are counted; `bisect_left` finds the range.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_Value = tuple[dict[str, str], float]  # labels and a number


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
        models = list(models)
        engines = [m for m in models if m.lm.config.is_causal]
        lines: list[str] = []

        def family(name: str, kind: str, help_text: str, values: Iterable[_Value]) -> None:
            lines.extend([f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"])
            lines.extend(f"{name}{_braced(labels)} {value}" for labels, value in values)

        def by_route(values: Counter[tuple[str, str]]) -> list[_Value]:
            return [({"path": path, "model": model}, value) for (path, model), value in sorted(values.items())]

        def by_thread(engine: Callable[[Served], int], jobs: Callable[[Served], int]) -> list[_Value]:
            generating: list[_Value] = [({"model": m.name, "thread": "engine"}, engine(m)) for m in engines]
            return generating + [({"model": m.name, "thread": "compute"}, jobs(m)) for m in models]

        def histogram(
            name: str, help_text: str, counts: Counter[tuple[str, str, int]], sums: dict[tuple[str, str], float]
        ) -> None:
            lines.extend([f"# HELP {name} {help_text}", f"# TYPE {name} histogram"])
            for (path, model), seconds in sorted(sums.items()):
                labels, total = {"path": path, "model": model}, 0
                for number, bound in enumerate((*BOUNDS, "+Inf")):
                    total += counts[path, model, number]
                    lines.append(f"{name}_bucket{_braced({**labels, 'le': str(bound)})} {total}")
                lines.append(f"{name}_sum{_braced(labels)} {seconds:.6f}")
                lines.append(f"{name}_count{_braced(labels)} {total}")

        answered: list[_Value] = [
            ({"path": path, "model": model, "status": str(status)}, count)
            for (path, model, status), count in sorted(self.requests.items())
        ]
        family("headwater_requests_total", "counter", "Requests answered.", answered)
        family("headwater_disconnected_total", "counter", "Requests whose client left.", [({}, self.disconnected)])
        family("headwater_open_requests", "gauge", "Requests open.", [({}, self.open)])
        family("headwater_active_requests", "gauge", "Requests of a model that have begun.", by_route(self.active))
        family("headwater_prompt_tokens_total", "counter", "Tokens read.", by_route(self.prompt_tokens))
        family("headwater_generated_tokens_total", "counter", "Tokens generated.", by_route(self.generated_tokens))
        running = by_thread(lambda m: m.worker.held - m.worker.waiting, lambda m: min(1, m.jobs))
        family("headwater_running", "gauge", "Continuations in a slot, and jobs that run.", running)
        waiting = by_thread(lambda m: m.worker.waiting, lambda m: max(0, m.jobs - 1))
        family("headwater_waiting", "gauge", "Continuations and jobs queued.", waiting)
        rejected = by_thread(lambda m: m.worker.rejected, lambda m: m.rejected)
        family("headwater_rejected_total", "counter", "Requests that found the queue full.", rejected)
        alive: list[_Value] = [({"model": m.name}, int(m.worker.alive)) for m in engines]
        family("headwater_engine_alive", "gauge", "Whether the engine's thread runs.", alive)
        opened: list[_Value] = [({"model": m.name}, m.created) for m in models]
        family("headwater_model_opened_seconds", "gauge", "When the model was opened, in Unix time.", opened)
        histogram("headwater_request_seconds", "Time to the end of an answer.", self.seconds, self.seconds_sum)
        histogram("headwater_first_token_seconds", "To a first token.", self.first_token, self.first_token_sum)
        return "\n".join(lines) + "\n"


def _braced(labels: dict[str, str]) -> str:
    written = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{written}}}" if labels else ""


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
