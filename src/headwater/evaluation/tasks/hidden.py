"""Pseudo-log-likelihood: the score for masked models (BERT) instead of a text's probability.

Each token is hidden alone and scored from all others (Salazar et al. 2020, "Masked Language Model Scoring",
equation 1). A protocol here asks about the same examples and tokens as one for causal models: CoLA's whole
sentence, SST-2's word after *very*, the text after a candidate in the pronoun sets.
"""

from __future__ import annotations

from copy import copy

from headwater.evaluation.protocols import Task
from headwater.evaluation.tasks.pronouns import TASKS as PRONOUNS
from headwater.evaluation.tasks.sentences import Acceptability, Sentiment


def _for_masked_models(task: Task) -> Task:
    hidden = copy(task)
    hidden.protocol = f"{task.benchmark}.pseudo-log-likelihood"
    hidden.masked = True
    return hidden


_CAUSAL = (Acceptability(), Sentiment(whole_word=True), *(task for task in PRONOUNS if task.reading != "full"))
TASKS = [_for_masked_models(task) for task in _CAUSAL]
