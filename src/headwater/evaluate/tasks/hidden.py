"""Pseudo-log-likelihood: the score for masked models (BERT) instead of a text's probability.

Each token is hidden alone and scored from all others (Salazar et al. 2020, "Masked Language Model Scoring",
equation 1). A protocol here asks about the same examples and tokens as one for causal models: CoLA's whole
sentence, SST-2's word after *very*, the text after a candidate in the pronoun sets.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.evaluate.protocols import Example, Request, Task
from headwater.evaluate.reader import ContinuationRequest, HiddenRequest, Reader
from headwater.evaluate.tasks.pronouns import TASKS as PRONOUNS
from headwater.evaluate.tasks.pronouns import Pronouns
from headwater.evaluate.tasks.sentences import Acceptability, Sentiment

NAME = "pseudo-log-likelihood"


def _hidden(requests: Sequence[Request]) -> list[Request]:
    return [HiddenRequest(*request) for request in requests if isinstance(request, ContinuationRequest)]


def _make_masked(task: Task) -> None:
    task.protocol = f"{task.benchmark}.{NAME}"
    task.masked = True


class HiddenSentiment(Sentiment):
    """SST-2 by the word after *very*, its tokens hidden one at a time."""

    def __init__(self) -> None:
        super().__init__(whole_word=True)
        _make_masked(self)

    def requests(self, example: Example, reader: Reader) -> Sequence[Request]:
        """Return each label word after the sentence."""
        return _hidden(super().requests(example, reader))


class HiddenAcceptability(Acceptability):
    """CoLA by the mean over the sentence's tokens."""

    def __init__(self) -> None:
        _make_masked(self)

    def requests(self, example: Example, reader: Reader) -> Sequence[Request]:
        """Return the whole sentence."""
        return _hidden(super().requests(example, reader))


class HiddenPronouns(Pronouns):
    """The candidate that a pronoun refers to, by the text after each candidate."""

    def __init__(self, task: Pronouns) -> None:
        (source,) = task.sources
        super().__init__(task.benchmark, task.reading, source.names, source.where)
        _make_masked(self)

    def requests(self, example: Example, reader: Reader) -> Sequence[Request]:
        """Return the text after each candidate."""
        return _hidden(super().requests(example, reader))


TASKS: list[Task] = [
    HiddenAcceptability(),
    HiddenSentiment(),
    *(HiddenPronouns(task) for task in PRONOUNS if task.reading != "full"),
]
