"""Zero-shot scores over updates, while a model is trained (GPT-1, Radford et al. 2018, figure 2 on the right).

`pretrain(…, more_figures=Follower(…))` calls it after each update. It scores a few examples of each protocol at a
fixed interval. An evaluation is skipped if it would bring the time of all evaluations above SHARE, assuming that
it takes as long as the previous one. So the first is never skipped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.errors import DataError, MismatchError, ResourceError, UsageError
from headwater.evaluation import DataFiles, EvaluateConfig, run_task, select
from headwater.inference import LanguageModel
from headwater.model import ModelConfig
from headwater.pretraining import tokenizer_of
from headwater.storage import SILENT, Progress

SHARE = 0.1  # of the time since the first call
EXAMPLES = 100  # of each protocol


class Follower:
    """Scores `tasks` after every `every` updates of a model that trains on the folder `tokens`.

    The files of the tasks are in `tokens` and `data`. Raises ResourceError if one is missing, DataError if a
    protocol is not for the kind of model that `config` describes. The figures are named
    `zero-shot PROTOCOL METRIC`. A protocol that cannot be scored is noted and not tried again.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        tokens: Path,
        data: Sequence[Path],
        config: ModelConfig,
        *,
        every: int,
        progress: Progress = SILENT,
    ) -> None:
        if every < 1:
            raise UsageError(f"every = {every}", expected="at least 1")
        self.every, self._tokens, self._progress = every, tokens, progress
        listing = DataFiles([tokens, *data])
        if not config.is_causal:
            raise DataError("the protocols are not for this kind of model", expected="a causal model")
        self._tasks = [(task, listing.locate(task.sources)) for task in select(tasks)]
        self._started: float | None = None
        self._spent = self._last = 0.0

    def __call__(self, model: Any, step: int) -> dict[str, float]:
        """Return the figures after update `step`, or none if no evaluation is due. The model is not changed."""
        now = time.perf_counter()
        if self._started is None:
            self._started = now
        if step % self.every or self._spent + self._last > SHARE * (now - self._started + self._last):
            return {}
        training = model.training
        precision = "bf16" if "bfloat16" in str(next(model.parameters()).dtype) else "fp32"
        lm = LanguageModel(model, tokenizer_of(model.config, self._tokens), precision=precision)
        figures = {}
        without_yardsticks = EvaluateConfig(yardstick_bytes=0)  # they need no model and cost more than the score
        try:
            for task, places in list(self._tasks):
                try:
                    results = run_task(task, places, lm, config=without_yardsticks, limit=EXAMPLES).results
                except (DataError, MismatchError, ResourceError) as error:
                    self._tasks.remove((task, places))
                    self._progress.note(f"{task.protocol} is not evaluated any more: {error}")
                    continue
                for result in results:
                    figures[f"zero-shot {result.protocol} {result.metric}"] = result.value
        finally:
            model.train(training)
        self._last = time.perf_counter() - now
        self._spent += self._last
        return figures
