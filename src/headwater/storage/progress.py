"""Report the progress of a stage, to a terminal or not at all."""

from __future__ import annotations

import builtins
import sys
import time
from contextlib import suppress

from headwater.display import duration, printable


class Progress:
    """Receives a stage's progress and shows nothing; the command line passes a subclass that shows it.

    A stage calls `start`, then `advance` any number of times, then `finish`.
    """

    def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
        """Begin a stage of `total` units, None if that is not known."""

    def advance(self, done: float, **figures: float) -> None:
        """Report that `done` units are done in all, with the latest `figures`, such as loss, tokens_per_second."""

    def note(self, text: str) -> None:
        """Show one sentence that stays readable after the display is gone."""

    def finish(self, summary: str = "") -> None:
        """End the stage; `summary` says in a few words what it produced."""

    def stop(self) -> None:
        """End a stage that failed or was interrupted, if there is one."""

    @staticmethod
    def figure_texts(figures: dict[str, float]) -> list[str]:
        """Return figures as text: `loss 3.214`, `7,430 tokens/s`."""
        texts = []
        for name, value in figures.items():
            if name.endswith("_per_second"):
                texts.append(f"{value:,.0f} {name.removesuffix('_per_second')}/s")
            else:
                shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
                texts.append(f"{name.replace('_', ' ')} {shown}")
        return texts


# A progress display that shows nothing.
SILENT = Progress()


class PlainProgress(Progress):
    """Prints a line when a stage starts, at most one in `interval_seconds` while it runs, and one at its end."""

    interval_seconds = 10.0
    _stage = ""  # the one that runs

    def print(self, text: str) -> None:
        """Show a line."""
        say(text)

    def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
        """See Progress."""
        self._stage, self._total, self._unit = stage, total, unit
        self._started = self._last = time.monotonic()
        self._first: tuple[float, float] | None = None
        self.print(f"{stage} …")

    def advance(self, done: float, **figures: float) -> None:
        """See Progress."""
        now = time.monotonic()
        if self._first is None:  # what a resumed stage had done before says nothing about its speed
            self._first = (now, done)
        if now - self._last < self.interval_seconds:
            return
        self._last = now
        amount = f"{done:,.0f} of {self._total:,.0f}" if self._total else f"{done:,.0f}"
        parts = [f"{amount} {self._unit}".strip(), *self.figure_texts(figures)]
        began, before = self._first
        if self._total and done > before:
            left = (now - began) * (self._total - done) / (done - before)
            parts.append(f"{duration(left)} left")
        self.print(f"  {self._stage}: {', '.join(parts)}")

    def note(self, text: str) -> None:
        """See Progress."""
        self.print(f"  {text}")

    def finish(self, summary: str = "") -> None:
        """See Progress."""
        took = duration(time.monotonic() - self._started)
        self.print(f"{self._stage}: {summary or 'done'} ({took})")
        self._stage = ""

    def stop(self) -> None:
        """See Progress."""
        if self._stage:
            self.finish("stopped")


class InteractiveProgress(PlainProgress):
    """As PlainProgress in a notebook or an interactive session; shows nothing in a script."""

    def print(self, text: str) -> None:
        """See PlainProgress."""
        if hasattr(builtins, "__IPYTHON__") or hasattr(sys, "ps1"):
            super().print(text)


# The progress of calls from Python that name none.
INTERACTIVE = InteractiveProgress()


def say(text: str) -> None:
    """Print text on stderr; escape control characters, except tab and newline.

    Work continues when nothing can be written there: its reader or terminal is gone, or the disk of a log is full.
    """
    with suppress(OSError, ValueError):
        print(printable(text, keep="\n\t"), file=sys.stderr, flush=True)
