"""What a zero-shot task is: where its examples are, what is asked of the model, how answers become figures.

A benchmark read in two ways is two protocols, each with its own full name (`lambada.openai.last-token`, never just
"lambada"). A protocol is one small class in `tasks/`: `read` turns the official files into examples, `requests`
returns what the model is asked for an example, and `score` turns the answers into the figures of that example.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from headwater.config import Config
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.data_files import Source
from headwater.evaluation.figures import Figure
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.reading import sha256_of
from headwater.storage import Progress


class GenerationRequest(NamedTuple):
    """Ask for a continuation of `prompt` (token ids); `temperature` 0 always takes the most probable token.

    It ends before a text of `stop`, before `<|endoftext|>`, or after `max_tokens`. is_cut: whether the task left
    out a part of the prompt to fit the model.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0
    excluded: tuple[int, ...] = ()  # tokens that are never chosen
    is_cut: bool = False


TaskRequest = ContinuationRequest | GenerationRequest


class Scored(NamedTuple):
    """Answer to ContinuationRequest: each token's log-probability, and whether it was the most probable."""

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


# What a request is answered with.
Answer = Scored | Generated


@dataclass(frozen=True)
class Example:
    """One item of a benchmark: its position in the set, its content, and the text for measuring overlap."""

    id: str
    content: Mapping[str, Any]
    text: str = ""


def numbered(rows: Iterable[tuple[Mapping[str, Any], str]]) -> list[Example]:
    """Return an example for each (content, text), numbered from 1."""
    return [Example(str(number), content, text) for number, (content, text) in enumerate(rows, start=1)]


@dataclass(frozen=True)
class Metric:
    """A metric: its name, the value of random guessing, and which direction is better."""

    name: str
    chance: float | None = None
    higher_is_better: bool = True


class Task(ABC):
    """One protocol, described by its class attributes.

    summary: one line for a list. file: the task file that describes it, if it is not written in Python. published:
    the papers' values by metric and model. published_set: what identifies the set of these values, `sha256` of the
    scored bytes or `size`. in_windows: whether a text is scored in windows of the model's context.
    """

    benchmark: str
    protocol: str
    summary: str
    file: Path | None = None
    published: Mapping[str, Mapping[str, float]] = {}
    published_set: Mapping[str, Any] = {}
    in_windows: bool = False
    metrics: Sequence[Metric]
    sources: Sequence[Source]

    @abstractmethod
    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return the examples, from the files of `sources` by role.

        Raises DataError naming file and line if a file has another format or is cut short, or an error of
        `errors.MALFORMED`, which `score_task.examples_of` turns into one.
        """

    @abstractmethod
    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[TaskRequest]:
        """Return what is asked of the model for one example, encoded with its tokenizer.

        Raises DataError if the example cannot be asked in the form of the protocol.
        """

    def further(
        self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder
    ) -> Sequence[TaskRequest]:
        """Return the next requests after the answers so far; none, as by default, if the example is done."""
        return []

    @abstractmethod
    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return the record of one example: each metric by name, and anything else to store."""

    def limited(self, examples: Sequence[Example], limit: int | None) -> Sequence[Example]:
        """Return the examples of an evaluation with --limit: by default the first ones."""
        return examples[:limit]

    def is_published_set(self, files: Mapping[str, Path], examples: Sequence[Example]) -> bool:
        """Return whether the files, and all their examples, are the set that the published values are of."""
        known = self.published_set
        if "sha256" in known:
            return sha256_of(files[self.sources[0].role]) == known["sha256"]
        return len(examples) == known.get("size", len(examples))

    def scored_texts(self, files: Mapping[str, Path], examples: Sequence[Example]) -> Iterable[str]:
        """Return the texts that are scored, as their file has them: by default those of the examples."""
        return (example.text for example in examples)

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return the figures over all examples: by default the mean of each metric with its standard error."""
        return [
            Figure.share(metric.name, [float(record[metric.name]) for record in records])
            for metric in self.metrics
        ]

    def details(
        self, files: Mapping[str, Path], examples: Sequence[Example], config: EvaluateConfig, progress: Progress
    ) -> dict[str, Any]:
        """Return details that need no model, such as yardsticks on the same text."""
        return {}

    def chance(self, metric: str, examples: Sequence[Example]) -> float | None:
        """Return the value of random guessing on the examples; None if it is not defined."""
        return self.metric(metric).chance

    def metric(self, name: str) -> Metric:
        """Return the metric with this name, or a plain one."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name))


class TaskFile(Config):
    """What a TOML file says of the protocols that it describes; each kind adds its keys."""

    benchmark: str = Field(pattern=r"^\w[\w.-]*$")
    """Beginning of the protocols' names, which are names of files too."""
    summary: str = ""
    """What is asked, in one line."""
    files: tuple[str, ...] = ()
    """Names of the file, best first."""
    where: str = ""
    """Where to get it."""

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """Return the protocols."""
