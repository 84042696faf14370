"""Answer the requests of protocols with a language model, in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from headwater.evaluation.answers import AnswerFile
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.protocols import Answer, Generated, GenerationRequest, Scored, TaskRequest
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.inference import LanguageModel

# Requests in a batch: enough for the scorer to pack them and share prefixes, few enough to lose little when an
# evaluation is interrupted.
REQUESTS_TOGETHER = 512
_GENERATED_TOGETHER = 32
_NEVER = -1e9  # added to a logit


class RequestRunner:
    """Answers requests with a model, each once, and stores the answers in a file.

    encoder: encodes texts for the model. seconds: spent in the model so far. The precision of `config` is that of
    `lm`, whatever it says.
    """

    def __init__(
        self,
        lm: LanguageModel,
        config: EvaluateConfig | None = None,
        stored: AnswerFile | None = None,
    ) -> None:
        self.lm, self.config, self.stored, self.seconds = lm, config or EvaluateConfig(), stored, 0.0
        self.scorer = lm.scorer  # its error comes first
        self.encoder = RequestEncoder(lm.tokenizer, lm.config.context, self.config.window, self.config.stride)

    def answer(self, requests: Sequence[TaskRequest]) -> dict[TaskRequest, Answer]:
        """Return an answer for each request, from the file if it has it."""
        wanted = list(dict.fromkeys(requests))
        answers = self.stored.look_up(wanted) if self.stored else {}
        new = [request for request in wanted if request not in answers]
        # Sorted, so that requests with a common prefix are in one batch.
        scored = sorted(request for request in new if isinstance(request, ContinuationRequest))
        generated = [request for request in new if isinstance(request, GenerationRequest)]
        kinds: Sequence[tuple[Sequence[Any], int, Callable[[Sequence[Any]], list[Answer]]]] = (
            (scored, REQUESTS_TOGETHER, self._score),
            (generated, _GENERATED_TOGETHER, self._generate),
        )
        for group, size, compute in kinds:
            for start in range(0, len(group), size):
                batch = group[start : start + size]
                started = time.perf_counter()
                computed = dict(zip(batch, compute(batch), strict=True))
                self.seconds += time.perf_counter() - started
                if self.stored:
                    self.stored.add(computed)
                answers |= computed
        return answers

    def _score(self, requests: Sequence[ContinuationRequest]) -> list[Answer]:
        pairs = [(list(request.context), list(request.continuation)) for request in requests]
        return [
            Scored(tuple(map(float, score.log_probability)), tuple(map(bool, score.is_greedy)))
            for score in self.scorer.token_scores(pairs)
        ]

    def _generate(self, requests: Sequence[GenerationRequest]) -> list[Answer]:
        running, engine = [], self.lm.engine
        for request in requests:
            options = self.lm.request(
                request.prompt,
                max_tokens=request.max_tokens,
                stop=request.stop,
                temperature=request.temperature,
                top_k=request.top_k,
                seed=request.seed,
                bias=dict.fromkeys(request.excluded, _NEVER),
                alternatives=0,
            )
            running.append(engine.submit(options))
        return [_generated(generation) for generation in running]


def _generated(generation: Any) -> Generated:
    """Wait for one continuation and return its answer."""
    events = [event for event in generation if event.token is not None]
    log_probabilities = tuple(float(event.alternatives.log_probability) for event in events)
    return Generated(generation.text, tuple(int(event.token) for event in events), log_probabilities)
