"""How a model is asked: requests of protocols, in batches, through a language model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.evaluate.cache import AnswerCache
from headwater.evaluate.protocols import (
    Answer,
    Generated,
    GenerationRequest,
    Request,
    Scored,
)
from headwater.evaluate.reader import ContinuationRequest, HiddenRequest
from headwater.language_model import LanguageModel

# Requests asked together: enough for the scorer to pack and to share beginnings, few enough to lose little when
# an evaluation is interrupted.
REQUESTS_TOGETHER = 512
_WRITTEN_TOGETHER = 32
_NEVER = -1e9  # added to a logit


@dataclass
class Asker:
    """Puts requests to a model, each once, remembering the answers."""

    lm: LanguageModel
    cache: AnswerCache | None = None
    seconds: float = field(default=0.0, init=False)

    def ask(self, requests: Sequence[Request]) -> dict[Request, Answer]:
        """An answer for each request, from the cache where it is there."""
        wanted = list(dict.fromkeys(requests))
        answers = self.cache.look_up(wanted) if self.cache else {}
        new = [request for request in wanted if request not in answers]
        # In order, so that those with a common beginning are asked together.
        scored = sorted(request for request in new if isinstance(request, ContinuationRequest))
        hidden = sorted(request for request in new if isinstance(request, HiddenRequest))
        written = [request for request in new if isinstance(request, GenerationRequest)]
        for start in range(0, len(scored), REQUESTS_TOGETHER):
            self._take(answers, self._score, scored[start : start + REQUESTS_TOGETHER])
        for start in range(0, len(hidden), REQUESTS_TOGETHER):
            self._take(answers, self._score_hidden, hidden[start : start + REQUESTS_TOGETHER])
        for start in range(0, len(written), _WRITTEN_TOGETHER):
            self._take(answers, self._write, written[start : start + _WRITTEN_TOGETHER])
        return answers

    def _take(
        self, answers: dict[Request, Answer], ask: Callable[[Sequence[Any]], list[Answer]], part: Sequence[Request]
    ) -> None:
        started = time.perf_counter()
        new = dict(zip(part, ask(part), strict=True))
        self.seconds += time.perf_counter() - started
        if self.cache:
            self.cache.keep(new)
        answers |= new

    def _score(self, requests: Sequence[ContinuationRequest]) -> list[Answer]:
        pairs = [(list(request.context), list(request.continuation)) for request in requests]
        return [
            Scored(tuple(map(float, score.log_probability)), tuple(map(bool, score.is_greedy)))
            for score in self.lm.scorer.token_scores(pairs)
        ]

    def _score_hidden(self, requests: Sequence[HiddenRequest]) -> list[Answer]:
        before, after = self.lm.tokenizer.frame
        room = self.lm.config.context - len(before) - len(after)
        asked = []
        for request in requests:
            text = [*request.context, *request.continuation][-room:]  # a long text loses the start of its context
            end = len(before) + len(text)
            asked.append(([*before, *text, *after], range(end - len(request.continuation), end)))
        return [
            Scored(tuple(scores.tolist()), tuple(greedy.tolist()))
            for scores, greedy in self.lm.hidden_scores(asked)
        ]

    def _write(self, requests: Sequence[GenerationRequest]) -> list[Answer]:
        running, engine = [], self.lm.engine
        for request in requests:
            options: dict[str, Any] = {
                "max_tokens": request.max_tokens,
                "stop": request.stop,
                "temperature": request.temperature,
                "top_k": request.top_k,
                "seed": request.seed,
                "bias": dict.fromkeys(request.excluded, _NEVER),
                "alternatives": 0,
            }
            running.append(engine.submit(self.lm.request(request.prompt, **options)))
        return [_generated(generation) for generation in running]


def _generated(generation: Any) -> Generated:
    """Drive one continuation to its end."""
    tokens, log_probabilities = [], []
    for event in generation:
        if event.token is not None:
            tokens.append(int(event.token))
            log_probabilities.append(float(event.alternatives.log_probability))
    return Generated(generation.text, tuple(tokens), tuple(log_probabilities))
