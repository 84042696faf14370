"""Beam search: the continuations that are most probable as a whole (Graves 2012, section 3.1; Wu et al. 2016).

Each step extends every beam by each of its likeliest tokens and keeps the best `beams` of all. A beam that ends is
ranked by its log-probability divided by its length to the power of `length_penalty`. The search ends when no beam
under way has, at its present length, a better score than the worst of as many that have ended. These rules, and
the texts in float32, are those of transformers with `early_stopping=False`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headwater.display import counted
from headwater.errors import UsageError
from headwater.inference.network import DecodeRow, PromptChunk, Runner
from headwater.inference.request import EndReason, Request, TextStream, TokenRules
from headwater.inference.sampling import Logits, not_finite, penalise, subtract
from headwater.tokenizer import Tokenizer


class Beam(NamedTuple):
    """A continuation that beam search found.

    score: its log-probability divided by its length to the power of `length_penalty`.
    """

    tokens: list[int]
    score: float
    finished: EndReason


class BeamSearch:
    """One search; call `step` until it returns False, then read `best`."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        request: Request,
        beams: int,
        *,
        length_penalty: float = 1.0,
    ) -> None:
        """Check the request.

        runner: with at least `beams` slots, used by nothing else. Of the request's sampling, only bias and
        penalties apply. Raises UsageError for a request that does not fit the model.
        """
        if not 1 <= beams <= runner.slots:
            raise UsageError(f"{counted(beams, 'beam')}", expected=f"1 to {runner.slots}", param="best_of")
        if request.beyond_context == "shift":
            raise UsageError("beam search cannot drop the older part of a text", param="beyond_context")
        self._vocabulary = tokenizer.vocabulary_size
        self._length = request.length(runner.context, self._vocabulary)
        self._runner, self._tokenizer, self._request = runner, tokenizer, request
        self._beams, self._penalty = beams, length_penalty
        self._rules = TokenRules(tokenizer)
        self._ends = self._rules.ends(request)
        self._silent = self._ends | set(tokenizer.ends)  # tokens without a text
        self._read = 0  # tokens of the prompt whose keys and values are in slot 0
        # Of the beams under way, best first: their tokens, log-probabilities, and slots.
        self._running: list[list[int]] = [[]]
        self._totals = torch.zeros(1)
        self._slots = [0]
        self.best: list[Beam] = []  # that have ended, best first

    def step(self) -> bool:
        """Read a block of the prompt, or extend every beam by a token. Returns whether work is left."""
        prompt = self._request.prompt
        if self._read < len(prompt) - 1:
            end = min(len(prompt) - 1, self._read + self._runner.lone_block)
            self._runner.step([], PromptChunk(0, self._read, list(prompt[self._read : end])))
            self._read = end
            return True
        candidates = self._candidates()
        count = len(self._running[0]) + 1
        divisor = np.float32(count**self._penalty)
        kept: list[int] = []
        for rank, (total, row, token) in enumerate(candidates):
            tokens = [*self._running[row], token]
            finished = self._finished(tokens)
            if finished is None and len(kept) < self._beams:
                kept.append(rank)
            # Candidates beyond the best `beams` replace those that end, and do not end themselves.
            if finished is not None and rank < self._beams:
                self.best.append(Beam(tokens, float(np.float32(total) / divisor), finished))
        self.best = sorted(self.best, key=lambda beam: -beam.score)[: self._beams]
        if not kept:
            return False
        chosen = [candidates[rank] for rank in kept]
        self._assign_slots([row for _, row, _ in chosen], len(prompt) + count - 1)
        self._running = [[*self._running[row], token] for _, row, token in chosen]
        self._totals = torch.tensor([total for total, _, _ in chosen])
        possible = float(np.float32(chosen[0][0]) / divisor)
        return len(self.best) < self._beams or possible > self.best[-1].score

    def text(self, beam: Beam) -> str:
        """Return a beam's text, without what ended it."""
        return self._read_text(beam.tokens)[0]

    def _read_text(self, tokens: list[int]) -> tuple[str, bool]:
        """Return the text of generated tokens, and whether a stop text ends it."""
        stream = TextStream(self._tokenizer, self._request.stop, before=self._request.prompt[-1])
        parts = [
            stream.push(token, may_stop=count >= self._request.min_tokens)
            for count, token in enumerate(tokens, 1)
            if token not in self._silent
        ]
        return "".join(parts) + stream.finish(), stream.stopped

    @torch.inference_mode()
    def _candidates(self) -> list[tuple[float, int, int]]:
        """Return (log-probability, row of the beam, next token), best first, as many as may be needed."""
        prompt = self._request.prompt
        steps = [
            DecodeRow(slot, len(prompt) + len(tokens) - 1, tokens[-1] if tokens else prompt[-1])
            for slot, tokens in zip(self._slots, self._running, strict=True)
        ]
        logits = self._runner.step(steps, None).float().cpu()
        if not torch.isfinite(logits.amax()):
            raise not_finite(float(logits.amax()))
        scores = logits.log_softmax(dim=-1)[:, : self._vocabulary].contiguous()
        for row, tokens in zip(scores.numpy(), self._running, strict=True):
            self._adjust(row, tokens)
        totals: Tensor = (scores + self._totals[:, None]).flatten()
        values, indices = totals.topk(min(len(totals), max(2, 1 + len(self._ends)) * self._beams))
        rows, tokens_next = indices // self._vocabulary, indices % self._vocabulary
        return list(zip(values.tolist(), rows.tolist(), tokens_next.tolist(), strict=True))

    def _adjust(self, scores: Logits, tokens: list[int]) -> None:
        """Apply the request's bias, penalties and rules to a beam's next log-probabilities, in place."""
        request = self._request
        if request.bias:
            biased, added = request.bias_arrays
            scores[biased] += added
        if request.repetition_penalty != 1:
            penalise(scores, [*request.prompt, *tokens], request.repetition_penalty)
        if (request.presence_penalty or request.frequency_penalty) and tokens:
            subtract(scores, tokens, request.presence_penalty, request.frequency_penalty)
        if forbidden := self._rules.forbidden(request, len(tokens)):
            scores[list(forbidden)] = -np.inf

    def _finished(self, tokens: list[int]) -> EndReason | None:
        if tokens[-1] in self._ends or (self._request.stop and self._read_text(tokens)[1]):
            return "stop"
        return "length" if len(tokens) == self._length else None

    def _assign_slots(self, rows: list[int], length: int) -> None:
        """Give each new beam the keys and values of the beam that it extends: `length` positions."""
        free = sorted(set(range(self._beams)) - {self._slots[row] for row in rows})
        assigned: list[int] = []
        for row in rows:
            slot = self._slots[row]
            if slot in assigned:
                self._runner.copy(slot, free[-1], length)
                slot = free.pop()
            assigned.append(slot)
        self._slots = assigned
