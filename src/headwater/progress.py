"""How a stage tells whoever watches what it is doing, be that a terminal or nobody."""

from __future__ import annotations


class Progress:
    """Receives a stage's progress and shows nothing; the command line hands in one that does.

    A stage calls `start`, then `advance` as often as it likes, then `finish`. `note` is one sentence that
    stays readable after the display has gone.
    """

    def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
        """A stage begins; `total` units are to be done, or None where that is not known."""

    def advance(self, done: float, **figures: float) -> None:
        """`done` units are done in all; `figures` such as loss and tokens_per_second are the newest ones."""

    def note(self, text: str) -> None:
        """Say one sentence that stays."""

    def finish(self, summary: str = "") -> None:
        """The stage has ended; `summary` says in a few words what came out."""


SILENT = Progress()
