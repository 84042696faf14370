"""The engine: run many continuations at a time, each with the result that it has alone.

Requests join and leave between steps (continuous batching, Yu et al. 2022, section 3). A step advances every
request that is past its prompt by one token and also reads one block of one prompt, so that a long prompt does not
stall the others. Memory is fixed: each running request has one slot of the cache, allocated once; further requests
wait in order. A slot keeps its keys and values when its request ends, and a later request that begins with the
same tokens reuses them.

Calls are safe from several threads; `submit`, `cancel` and `load` never wait for a step. No thread has to run a
loop: the caller that waits for an event drives the steps.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from headwater.device import to_device
from headwater.errors import HeadwaterError, UsageError
from headwater.inference.network import DecodeRow, PromptChunk, Runner
from headwater.inference.request import Event, Reason, Request, TextStream, shared_length
from headwater.inference.sampling import (
    Alternatives,
    Logits,
    alternatives,
    choose,
    choose_rows,
    not_finite,
    uniform,
)
from headwater.tokenizer import TASK_TOKENS, Tokenizer


class Generation:
    """A continuation in progress. Iterate over its events, or read `tokens`, `text` and `finished` at its end."""

    def __init__(self, engine: Engine, request: Request, max_tokens: int) -> None:
        self.request, self.max_tokens = request, max_tokens
        self.tokens: list[int] = []
        self.text = ""
        self.finished: Reason | None = None
        self._engine = engine
        self._events: deque[Event] = deque()
        self._error: HeadwaterError | None = None
        self._slot: _Slot | None = None
        # The tokens that the model reads: prompt and continuation, without the part dropped by a shift. The first
        # `_prefix` of them are read in blocks, the generated ones one per step, also when they are read again.
        self._visible = _fitting(list(request.prompt), engine.runner.context)
        self._prefix = len(self._visible) - 1
        self._stream = TextStream(engine.tokenizer, request.stop, before=request.prompt[-1])

    def __iter__(self) -> Iterator[Event]:
        """Yield the events, driving the engine until the next one comes; raise the error that ended it."""
        while True:
            finished = self.finished  # read first: another thread may add the last event after the next line
            if self._events:
                yield self._events.popleft()
            elif finished is not None:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._engine.advance(self)

    def wait(self) -> Generation:
        """Drive the engine until this request has finished."""
        for _ in self:
            pass
        return self

    def take_events(self) -> Iterator[Event]:
        """Yield the events that have come and were not read, without a step: another thread drives the engine."""
        while self._events:
            yield self._events.popleft()

    def cancel(self) -> None:
        """Cancel it before its next token; its slot is free at the next step."""
        self._engine.cancel(self)

    def _emit(self, event: Event) -> None:
        self.text += event.text
        if event.token is not None:
            self.tokens.append(event.token)
        self._events.append(event)
        self._error, self.finished = event.error, event.finished


class _Slot:
    """A row of the cache, the request that uses it, and the tokens at its positions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.generation: Generation | None = None
        self.filled: list[int] = []  # tokens whose keys and values another request may reuse
        self.length = 0  # number of filled positions
        self.used = 0  # time of its last admission, in admissions


class Engine:
    """Continues many prompts at the same time with one model, a token of each per step.

    Read the events of a request by iterating over the Generation that `submit` returns.
    """

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self.runner, self.tokenizer = runner, tokenizer
        self.vocabulary = tokenizer.vocabulary_size  # the model's rows beyond it are never chosen
        tokenizer.require_rows(runner.vocabulary)
        self._ends_of_text, specials = set(tokenizer.roles.ends), tokenizer.special_tokens
        self._task_tokens = {specials[name] for name in TASK_TOKENS if name in specials}
        self._lock = threading.RLock()
        self._waiting: deque[Generation] = deque()
        self._cancelled: deque[Generation] = deque()  # since the last step
        self._slots = [_Slot(number) for number in range(runner.slots)]
        self._clock = 0

    def submit(self, request: Request, length: int | None = None) -> Generation:
        """Queue a request. Raises UsageError if it does not fit the model.

        length: what `request.length` returned, if the caller has already checked the request with it.
        """
        if length is None:
            length = request.length(self.runner.context, self.vocabulary)
        if len(self._forbidden(request, 0)) >= self.vocabulary:
            raise UsageError(
                f"every token would end the text, and min_tokens is {request.min_tokens}",
                expected="min_tokens=0, or fewer stop tokens",
                param="min_tokens",
            )
        generation = Generation(self, request, length)
        self._waiting.append(generation)
        return generation

    def cancel(self, *generations: Generation) -> None:
        """Cancel generations, at the latest after the current step. A finished one is left as it is."""
        self._cancelled.extend(generations)
        if self._lock.acquire(blocking=False):
            try:
                self._end_cancelled()
            finally:
                self._lock.release()

    def advance(self, generation: Generation) -> None:
        """Run a step, unless another thread's step has already given `generation` an event."""
        with self._lock:
            if not generation._events and generation.finished is None:
                self.step()

    @property
    def load(self) -> tuple[int, int]:
        """(running, waiting) requests."""
        running = sum(slot.generation is not None for slot in self._slots)
        return running, len(self._waiting)

    def step(self) -> bool:
        """Advance all requests by one step. Returns whether work is left.

        After an exception in a step (Ctrl-C) the running requests are computed again.
        An error of one request ends only that request.
        """
        with self._lock:
            try:
                return self._step()
            except BaseException:
                for slot in self._slots:
                    slot.filled, slot.length = [], 0
                raise

    def _step(self) -> bool:
        self._end_cancelled()
        self._admit()
        decoding = any(self._is_ready(slot) for slot in self._slots)
        block = self._next_block(self.runner.shared_block if decoding else self.runner.lone_block)
        ready = [(slot, slot.generation) for slot in self._slots if slot.generation and self._is_ready(slot)]
        steps = [DecodeRow(slot.number, slot.length, owner._visible[slot.length]) for slot, owner in ready]
        if steps or block is not None:
            logits = self.runner.step(steps, block)
            tokens = self._choose_together(logits, [owner for _, owner in ready])
            due: list[tuple[_Slot, Generation, int]] = []
            outputs: list[Tensor] = []
            for (slot, owner), last, row, token in zip(ready, steps, logits, tokens, strict=True):
                slot.length += 1
                if self.runner.exact:
                    slot.filled.append(last.token)
                # After a step that failed, some requests have their next token already.
                if slot.length == len(owner._visible):
                    try:
                        due.append((slot, owner, self._choose(owner, row, token)))
                        outputs.append(row)
                    except HeadwaterError as error:  # no token can be chosen, in this step or in later ones
                        slot.filled, slot.length = [], 0
                        text = owner._stream.finish()
                        self._finish(owner, Event(None, text, None, "cancelled", error=error))
            for (slot, owner, token), about in zip(due, self._alternatives(due, outputs), strict=True):
                self._follow(slot, owner, token, about)
        self._end_cancelled()
        return any(self.load)

    def _end_cancelled(self) -> None:
        while self._cancelled:
            generation = self._cancelled.popleft()
            if generation.finished is None:
                self._finish(generation, Event(None, generation._stream.finish(), None, "cancelled"))

    def _admit(self) -> None:
        """Give free slots to waiting requests, to each the slot that has most of its prompt."""
        while self._waiting and any(slot.generation is None for slot in self._slots):
            prompt = self._waiting[0]._visible[:-1]
            source = max(self._slots, key=lambda slot: self._held(slot.filled, prompt))
            most = self._held(source.filled, prompt)
            if self._is_coming(prompt, most):
                return
            free = [slot for slot in self._slots if slot.generation is None]
            target = max(free, key=lambda slot: (self._held(slot.filled, prompt), -slot.used))
            if self._held(target.filled, prompt) < most:
                self.runner.copy(source.number, target.number, most)
            self._clock += 1
            target.used = self._clock
            target.generation = generation = self._waiting.popleft()
            generation._slot = target
            target.filled, target.length = prompt[:most], most

    def _is_coming(self, prompt: list[int], held: int) -> bool:
        """Return whether a slot is reading a prompt of which more than `held` tokens can be reused."""
        return any(
            slot.generation is not None
            and not self._is_ready(slot)
            and self._held(slot.generation._visible[: slot.generation._prefix], prompt) > held
            for slot in self._slots
        )

    def _is_ready(self, slot: _Slot) -> bool:
        """Return whether the part that is read in blocks is in the cache."""
        return slot.generation is not None and slot.length >= slot.generation._prefix

    def _next_block(self, longest: int) -> PromptChunk | None:
        """Return a block of the oldest prompt that is not yet read, and count its positions as filled."""
        unready = [s for s in self._slots if s.generation is not None and not self._is_ready(s)]
        if not unready:
            return None
        slot = min(unready, key=lambda slot: slot.used)
        assert slot.generation is not None
        end = min(slot.generation._prefix, slot.length + longest)
        block = PromptChunk(slot.number, slot.length, slot.generation._visible[slot.length : end])
        slot.filled += block.ids
        slot.length += len(block.ids)
        return block

    def _held(self, filled: list[int], prompt: list[int]) -> int:
        """Return how many tokens of a prompt can be reused from positions that hold `filled`."""
        shared = shared_length(filled, prompt)
        if self.runner.exact or shared == len(prompt):
            return shared
        return shared // self.runner.shared_block * self.runner.shared_block

    def _choose_together(self, logits: Tensor, owners: Sequence[Generation]) -> Sequence[int | None]:
        """Choose on a GPU for every row whose request allows it: rows of logits would be long to copy.

        logits: (rows, vocabulary of the model). Returns None for rows that are chosen for one by one.
        """
        tokens: list[int | None] = [None] * len(owners)
        plain = [row for row, owner in enumerate(owners) if owner.request.is_plain]
        if logits.device.type == "cuda" and plain:
            chosen = [owners[row] for row in plain]
            numbers = [uniform(owner.request.seed, owner.request.sample, len(owner.tokens)) for owner in chosen]
            rows = logits[to_device(torch.tensor(plain), logits.device), : self.vocabulary]
            forbidden = [self._forbidden(owner.request, len(owner.tokens)) for owner in chosen]
            if pairs := [(row, token) for row, tokens_of_row in enumerate(forbidden) for token in tokens_of_row]:
                rows[tuple(to_device(torch.tensor(pairs), logits.device).unbind(1))] = -torch.inf
            chosen_tokens = choose_rows(rows, [owner.request for owner in chosen], numbers).tolist()
            for row, token in zip(plain, chosen_tokens, strict=True):
                tokens[row] = token
        return tokens

    def _choose(self, generation: Generation, output: Tensor, token: int | None) -> int:
        """Return the next token of a request, chosen now if `token` is None.

        output: (vocabulary of the model,) float32.
        """
        request, count = generation.request, len(generation.tokens)
        if token == -1:
            raise not_finite(float(output.max()))
        if token is not None:
            return token
        logits: Logits = output[: self.vocabulary].cpu().numpy()
        if forbidden := self._forbidden(request, count):
            logits = logits.copy()
            logits[list(forbidden)] = -np.inf
        seen = [*request.prompt, *generation.tokens] if request.repetition_penalty != 1 else []
        number = uniform(request.seed, request.sample, count)
        return choose(logits, request, seen, number, generation.tokens)

    def _alternatives(
        self, due: list[tuple[_Slot, Generation, int]], outputs: list[Tensor]
    ) -> list[Alternatives | None]:
        """Return the log-probabilities of the chosen tokens, where a request asks for them.

        All rows of one count are one call: each operation of torch lets other threads take the interpreter.
        """
        scores: list[Alternatives | None] = [None] * len(due)
        counts = [generation.request.alternatives for _, generation, _ in due]
        for count in {count for count in counts if count is not None}:
            rows = [row for row, wanted in enumerate(counts) if wanted == count]
            logits = torch.stack([outputs[row] for row in rows])
            chosen = [due[row][2] for row in rows]
            known = alternatives(logits, range(len(rows)), chosen, count, self.vocabulary)
            for row, about in zip(rows, known, strict=True):
                scores[row] = about
        return scores

    def _follow(self, slot: _Slot, generation: Generation, token: int, about: Alternatives | None) -> None:
        """Add a chosen token to its text, and do what follows from it."""
        request, count = generation.request, len(generation.tokens)
        text, start = "", generation._stream.length
        if token in self._ends(request):
            self._finish(generation, Event(token, generation._stream.finish(), about, "stop", start))
            return
        if token not in self._ends_of_text:
            text = generation._stream.push(token, may_stop=count + 1 >= request.min_tokens)
        if generation._stream.stopped:
            self._finish(generation, Event(token, text, about, "stop", start))
        elif count + 1 == generation.max_tokens:
            self._finish(generation, Event(token, text + generation._stream.finish(), about, "length", start))
        else:
            generation._visible.append(token)
            if len(generation._visible) > self.runner.context:
                generation._visible = _fitting(generation._visible, self.runner.context)
                generation._prefix = len(generation._visible) - 1
                slot.filled, slot.length = [], 0
            generation._emit(Event(token, text, about, None, start))

    def _ends(self, request: Request) -> set[int]:
        """Return the tokens that end a request's text."""
        return (set() if request.ignore_end else self._ends_of_text) | set(request.stop_tokens)

    def _forbidden(self, request: Request, count: int) -> set[int]:
        """Return the tokens that may not follow `count` generated ones: early ends, and the tokens of a task.

        A bias for a token of a task allows it.
        """
        early = self._ends(request) if count < request.min_tokens else set()
        return early | (self._task_tokens - request.bias.keys())

    def _finish(self, generation: Generation, event: Event) -> None:
        if generation._slot is None:
            self._waiting.remove(generation)
        else:
            generation._slot.generation = None
        generation._emit(event)


def _fitting(tokens: list[int], context: int) -> list[int]:
    """Return a text, or if it is too long its last tokens, half as many as the context."""
    return tokens if len(tokens) <= context else tokens[-max(1, context // 2) :]


def text_pieces(generation: Generation) -> Iterator[str]:
    """Yield an empty text, then the text of each event. Cancel the generation at the end."""
    try:
        yield ""
        for event in generation:
            if event.text:
                yield event.text
    finally:
        if not sys.is_finalizing():  # then what `cancel` needs may be gone
            generation.cancel()
