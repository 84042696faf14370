"""Scores out of an evaluation, as experiments put them into tables: by column, by model, one value a seed."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.evaluate.results import Result, Results
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.statistics import Measured

Column = tuple[str, str]  # protocol, metric


class ScoreTable:
    """What several models got on the same columns; a column that no evaluation has is not there.

    values: column -> model -> one value a seed; counts: how many examples each is over; left_out: protocols that
    were skipped, and why.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = tuple(columns)
        self.values: dict[Column, dict[str, Measured]] = {}
        self.counts: dict[Column, int] = {}
        self.left_out: dict[str, str] = {}

    def add(self, laboratory: Laboratory, model: str, results: Results) -> None:
        """Take the columns of one evaluation of a model, the next seed of it."""
        self.left_out |= skipped_because(laboratory, results)
        for column in self._columns:
            found = result_of(results, *column)
            if found is not None:
                self.values.setdefault(column, {}).setdefault(model, Measured()).add(found.value, found.stderr)
                self.counts[column] = found.count

    def notes(self) -> list[str]:
        """A note on each protocol that was left out."""
        return [f"{protocol} is left out: {reason}" for protocol, reason in self.left_out.items()]


def result_of(results: Results, protocol: str, metric: str) -> Result | None:
    """Return one metric of one protocol, None where it was skipped."""
    for result in results.results:
        if (result.protocol, result.metric) == (protocol, metric):
            return result
    return None


def skipped_because(laboratory: Laboratory, results: Results) -> dict[str, str]:
    """Why protocols were left out, in words that name no place of this machine."""
    folder = str(laboratory.data)
    return {
        entry.protocol: entry.reason.replace(folder, "the data folder")
        for entry in results.skipped
        if entry.examples is None
    }
