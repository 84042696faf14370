"""What a zero-shot task is: where its examples are, what is asked of the model, how answers become figures.

A benchmark read in two ways is two protocols, each with its own full name (DESIGN: `lambada.openai.last-token`,
never one plain "lambada"). A protocol is one small class in `tasks/`: `read` turns the official files into
examples, `requests` says what the model is asked for one of them, `score` turns the answers into the figures of
that example. Summing up, caching, writing and comparing are the same for all and stand elsewhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headwater.datasets.places import Place, Source
from headwater.evaluate.reader import ContinuationRequest, HiddenRequest, Reader
from headwater.storage.progress import SILENT, Progress


class GenerationRequest(NamedTuple):
    """Ask for a continuation of `prompt` (token ids); `temperature` 0 takes the likeliest token each time.

    It ends before a text of `stop`, before `<|endoftext|>`, or after `max_tokens`.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0
    excluded: tuple[int, ...] = ()  # tokens that are never taken


Request = ContinuationRequest | HiddenRequest | GenerationRequest


class Scored(NamedTuple):
    """Answer to both requests for scores: the log-probability of each token, and whether it was the likeliest."""

    log_probabilities: tuple[float, ...]
    is_greedy: tuple[bool, ...]

    @property
    def total(self) -> float:
        """Log-probability of all tokens together."""
        return math.fsum(self.log_probabilities)

    @property
    def mean(self) -> float:
        """Log-probability a token."""
        return self.total / len(self.log_probabilities)


class Generated(NamedTuple):
    """Answer to GenerationRequest: its text and tokens, and the log-probability of each."""

    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]


Answer = Scored | Generated


@dataclass(frozen=True)
class Example:
    """One item of a benchmark: its place in the set, its content, and the text that overlap is measured on."""

    id: str
    content: Mapping[str, Any]
    text: str = ""


@dataclass(frozen=True)
class Figure:
    """One number of one protocol over all examples; `stderr` None where it has no meaning."""

    metric: str
    value: float
    stderr: float | None
    count: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A mean over examples: its name, what blind guessing gets, and which direction is better."""

    name: str
    chance: float | None = None
    higher_is_better: bool = True


class Task(ABC):
    """One protocol. The class attributes describe it; `evaluate --list` prints them.

    scored: what exactly is scored. from_paper: which of these choices a paper states. inferred: which ones it
    leaves open, or where this protocol differs. masked: whether it is for masked models, or for causal ones.
    """

    benchmark: str
    protocol: str
    summary: str
    scored: str
    from_paper: str = ""
    inferred: str = ""
    masked: bool = False
    metrics: Sequence[Metric]
    sources: Sequence[Source]

    @abstractmethod
    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """The examples, from the files found for each of `sources` by its role.

        Raises DataError naming file and line where a file is in another format or cut short, or one of
        `storage.MALFORMED`, which `run` makes into one.
        """

    @abstractmethod
    def requests(self, example: Example, reader: Reader) -> Sequence[Request]:
        """What is asked of the model for one example, tokenised with its tokenizer.

        Raises DataError when the example cannot be asked as the protocol wants.
        """

    def further(self, example: Example, answers: Sequence[Answer], reader: Reader) -> Sequence[Request]:
        """Return what to ask next, given the answers so far; empty, as by default, when the example is done."""
        return []

    @abstractmethod
    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """The figures of one example: every metric's name with its value, and what else should be kept."""

    def configured(self, *, yardstick_bytes: int | None) -> Task:
        """Return this task with the settings of an evaluation that concern it; by default none does."""
        return self

    def limited(self, examples: Sequence[Example], limit: int | None) -> Sequence[Example]:
        """Return the first `limit` examples."""
        return examples[:limit]

    def settings(self, reader: Reader) -> dict[str, Any]:
        """Choices that the protocol's name leaves open, as a window; recorded with the result."""
        return {}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """All examples together: by default the mean of each metric with its standard error."""
        return [
            mean_figure(metric.name, [float(record[metric.name]) for record in records]) for metric in self.metrics
        ]

    def beside(
        self, places: Mapping[str, Place], examples: Sequence[Example], progress: Progress = SILENT
    ) -> dict[str, Any]:
        """What stands beside the figures and needs no model, as yardsticks on the same text."""
        return {}

    def metric(self, name: str) -> Metric:
        """The metric with this name, or a plain one."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name))


def choose_largest(values: Sequence[float], label: int) -> dict[str, Any]:
    """The figures of one question by what each answer got: the largest is chosen, the first of equal ones."""
    chosen = max(range(len(values)), key=values.__getitem__)
    return {"accuracy": float(chosen == label), "chosen": chosen, "label": label}


def mean_figure(name: str, values: Sequence[float], **details: Any) -> Figure:
    """The mean and its standard error, from the spread of the examples."""
    count = len(values)
    mean = math.fsum(values) / count
    return Figure(name, mean, standard_error(values, mean), count, details)


def standard_error(values: Sequence[float], mean: float) -> float | None:
    """Of a mean, from the sample's own spread; None for a lone value."""
    if len(values) < 2:
        return None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def ratio_error(amounts: Sequence[float], units: Sequence[float]) -> float | None:
    """Standard error of Σ amounts / Σ units when examples differ in size (linearised ratio estimator)."""
    count = len(amounts)
    if count < 2:
        return None
    total = math.fsum(units)
    ratio = math.fsum(amounts) / total
    squares = math.fsum((a - ratio * u) ** 2 for a, u in zip(amounts, units, strict=True))
    return math.sqrt(squares * count / (count - 1)) / total
