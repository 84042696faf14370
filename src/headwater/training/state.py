"""The state of a run next to its weights and moments, and what a validation adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one validation.

    figures: for the journal, such as `validation_loss`. rank: the best state has the largest. details: JSON
    values for the run's curve.
    """

    figures: dict[str, float]
    rank: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingState:
    """What a resumed run continues with, next to its weights and moments; a checkpoint's `state.json`."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: dict[str, Any] | None = None  # {"rank": …, "step": …}
    # One entry per validation: step, figures, details, and as "training" the mean losses since the one before.
    curve: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)  # of losses since the last validation
    summed: int = 0

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TrainingState:
        """Return the state of a checkpoint; one of an earlier version has keys that are not used."""
        return cls(**{one.name: record[one.name] for one in fields(cls)})

    def measure(self, measured: Measurement) -> bool:
        """Add a validation of the present step to the curve; return whether it is the best one."""
        means = {name: total / self.summed for name, total in self.sums.items()}
        self.curve.append({"step": self.step, **measured.figures, **measured.details, "training": means})
        self.sums, self.summed = {}, 0
        is_best = self.best is None or measured.rank > tuple(self.best["rank"])
        if is_best:
            self.best = {"rank": list(measured.rank), "step": self.step}
        return is_best
