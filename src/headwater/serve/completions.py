"""/v1/completions: from the API's parameters to the engine's requests, and from its events to answers and chunks.

A text prompt is encoded as it stands, special tokens in it being plain text; no prompt at all is
`<|endoftext|>`. `logprobs` are the model's own, before temperature, filters and bias. With `echo` they begin with
the prompt's, its first token having none. `<|endoftext|>` ends a text: one of the tokens, but no part of `text`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import HeadwaterError
from headwater.inference.request import Event, Request
from headwater.inference.sampling import Alternatives
from headwater.inference.text import TextStream
from headwater.serve.limits import Limits
from headwater.serve.metrics import Metrics
from headwater.serve.problems import Problem, refused
from headwater.serve.schema import CompletionRequest
from headwater.serve.served import Served
from headwater.tokenizer import TASK_TOKENS, Tokenizer
from headwater.wording import counted

_NEVER = -1e9  # as a bias: the token cannot be drawn
DONE = b"data: [DONE]\n\n"


@dataclass
class Prompt:
    """One prompt: its ids, the text that `echo` gives back, and the log-probabilities of its tokens."""

    ids: list[int]
    text: str
    scores: list[Alternatives] = field(default_factory=list)


@dataclass
class Plan:
    """One API request, checked: `requests` are the continuations, `best_of` for each prompt in turn."""

    body: CompletionRequest
    prompts: list[Prompt]
    requests: list[Request]
    best_of: int
    n: int
    identity: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt.ids) for prompt in self.prompts)


class Answer:
    """One continuation as it grows."""

    def __init__(self, plan: Plan, tokenizer: Tokenizer, number: int) -> None:
        self.prompt = plan.prompts[number // plan.best_of]
        self._tokenizer, self._body = tokenizer, plan.body
        self.index = number
        self.tokens: list[int] = []
        self.finished: str | None = None
        self.total, self.scored = 0.0, 0  # log-probability of the generated tokens, and their number
        self._length = len(self.prompt.text) if plan.body.echo else 0
        self.pieces: list[dict[str, Any]] = []

    def opening(self) -> dict[str, Any]:
        """The prompt as a chunk, where `echo` asks for it."""
        body, prompt = self._body, self.prompt
        piece = self._piece(prompt.text, None)
        if body.return_token_ids:
            piece["token_ids"] = list(prompt.ids)
        if body.logprobs is not None:
            stream, length = TextStream(self._tokenizer), 0
            piece["logprobs"] = self._empty_logprobs()
            for token, scores in zip(prompt.ids, [None, *prompt.scores], strict=True):
                self._add(piece["logprobs"], token, scores, min(length, len(prompt.text)))
                length += len(stream.push(token))
        self.pieces.append(piece)
        return piece

    def take(self, event: Event) -> dict[str, Any]:
        """One event as a chunk."""
        finished = None if event.finished is None else ("length" if event.finished == "length" else "stop")
        piece = self._piece(event.text, finished)
        if self._body.return_token_ids:
            piece["token_ids"] = [] if event.token is None else [event.token]
        if self._body.logprobs is not None:
            piece["logprobs"] = self._empty_logprobs()
            if event.token is not None:
                self._add(piece["logprobs"], event.token, event.alternatives, self._length)
        if event.token is not None:
            self.tokens.append(event.token)
            if event.alternatives is not None:
                self.total += event.alternatives.log_probability
                self.scored += 1
        self._length += len(event.text)
        self.finished = finished
        self.pieces.append(piece)
        return piece

    def close(self) -> dict[str, Any]:
        """The end of an answer that generated nothing."""
        self.finished = "length"
        piece = self._piece("", "length")
        self.pieces.append(piece)
        return piece

    def whole(self, index: int) -> dict[str, Any]:
        """All chunks as one choice."""
        choice = self._piece("".join(piece["text"] for piece in self.pieces), self.finished)
        choice["index"] = index
        if self._body.logprobs is not None:
            choice["logprobs"] = joined = self._empty_logprobs()
            for piece in self.pieces:
                for key, values in (piece["logprobs"] or {}).items():
                    joined[key] += values
        if self._body.return_token_ids:
            choice["token_ids"] = [token for piece in self.pieces for token in piece.get("token_ids", [])]
        return choice

    def _piece(self, text: str, finished: str | None) -> dict[str, Any]:
        return {"index": self.index, "text": text, "logprobs": None, "finish_reason": finished}

    def _empty_logprobs(self) -> dict[str, list[Any]]:
        keys = ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
        return {key: [] for key in [*keys, "top_token_ids"][: 5 if self._body.return_token_ids else 4]}

    def _add(self, to: dict[str, list[Any]], token: int, scores: Alternatives | None, offset: int) -> None:
        to["tokens"].append(token_name(self._tokenizer, token))
        to["text_offset"].append(offset)
        top = None if scores is None else scores.likeliest
        to["token_logprobs"].append(None if scores is None else scores.log_probability)
        named = None if top is None else {token_name(self._tokenizer, other): value for other, value in top}
        to["top_logprobs"].append(named)
        if self._body.return_token_ids:
            ids = None if top is None else {token_name(self._tokenizer, other): other for other, _ in top}
            to["top_token_ids"].append(ids)


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """A token as the API names it: its text, or `bytes:\\xe2\\x80` where it is part of a character."""
    if token >= tokenizer.vocabulary_size:
        return f"bytes:{token}"
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def plan_completion(served: Served, body: CompletionRequest, limits: Limits) -> Plan:
    """Check the parameters against the model. Raises Problem naming the one that is wrong."""
    if body.suffix:
        raise Problem(400, "suffix is not supported: this model writes forwards only.", param="suffix")
    if body.top_p == 0:
        raise Problem(400, "top_p is 0; expected a number above 0, at most 1.", param="top_p")
    if body.stream_options is not None and not body.stream:
        raise Problem(400, "stream_options goes together with stream only.", param="stream_options")
    n = body.n or 1
    best_of = body.best_of or n
    if best_of < n:
        raise Problem(400, f"best_of is {best_of} and n is {n}; expected best_of ≥ n.", param="best_of")
    if body.stream and best_of > n:
        raise Problem(400, "best_of chooses among whole texts, so it does not go with stream.", param="best_of")
    prompts = read_prompts(served, body.prompt, "prompt")
    if len(prompts) * best_of > served.worker.capacity:
        asked = f"{counted(len(prompts), 'prompt')} with {counted(best_of, 'continuation')} each"
        raise Problem(400, f"{asked} at once; the most is {served.worker.capacity} in all.", param="prompt")
    options = _options(served, body, need_scores=best_of > n)
    requests = []
    total = sum(len(prompt.ids) for prompt in prompts)
    engine = served.engine
    for prompt in prompts:
        if body.max_tokens == 0:
            _check_ids(served, prompt.ids, "prompt")
            continue
        for sample in range(best_of):
            try:
                request = served.lm.request(prompt.ids, **dict(options), sample=sample)
                total += request.length(engine.runner.context, engine.vocabulary)
            except HeadwaterError as error:
                raise refused(error, _too_much(served, body, prompt)) from None
            requests.append(request)
    if total > limits.tokens:
        raise Problem(400, f"{total:,} tokens in one request; the most is {limits.tokens:,}.", param="max_tokens")
    return Plan(body, prompts, requests, best_of, n)


def _too_much(served: Served, body: CompletionRequest, prompt: Prompt) -> str:
    """The parameter for which a request does not fit the model, in the order in which they are looked at."""
    if (body.top_k or 0) > served.engine.vocabulary:
        return "top_k"
    room = served.lm.config.context + 1 - len(prompt.ids)
    if room < 1:
        return "prompt"
    return "max_tokens" if (body.max_tokens or 0) > room else "min_tokens"


def _options(served: Served, body: CompletionRequest, need_scores: bool) -> dict[str, Any]:
    stop = [body.stop] if isinstance(body.stop, str) else (body.stop or [])
    options: dict[str, Any] = {
        "max_tokens": body.max_tokens,
        "min_tokens": body.min_tokens,
        "stop": tuple(stop),
        "seed": secrets.randbits(32) if body.seed is None else body.seed % 2**64,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "bias": _bias(served, body.logit_bias or {}),
        "alternatives": 0 if need_scores and body.logprobs is None else body.logprobs,
    }
    return {name: value for name, value in options.items() if value is not None}


def _bias(served: Served, given: dict[str, float]) -> dict[int, float]:
    """Return the bias of single tokens. A fine-tuned model never writes the tokens of its task."""
    vocabulary = served.engine.vocabulary
    specials = served.lm.tokenizer.special_tokens if served.fine_tuned else {}
    bias = {specials[name]: _NEVER for name in TASK_TOKENS if name in specials}
    for name, value in given.items():
        token = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else -1
        if not 0 <= token < vocabulary:
            expected = f"expected an id from 0 to {vocabulary - 1}"
            raise Problem(400, f"logit_bias names the token {name[:40]!a}; {expected}.", param="logit_bias")
        bias[token] = float(value)
    return bias


def read_prompts(served: Served, given: Any, param: str) -> list[Prompt]:
    """Texts or token ids as prompts; none is `<|endoftext|>`."""
    tokenizer = served.lm.tokenizer
    if given is None:
        given = ""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    if not given:
        raise Problem(400, f"{param} is empty; expected at least one.", param=param)
    prompts = []
    for one in given:
        if isinstance(one, str):
            try:
                prompts.append(Prompt(served.lm.prompt_ids(one), one))
            except HeadwaterError as error:
                raise refused(error, param) from None
        else:
            _check_ids(served, one, param, context=False)
            stream = TextStream(tokenizer)
            prompts.append(Prompt(list(one), "".join(stream.push(token) for token in one) + stream.finish()))
    return prompts


def _check_ids(served: Served, ids: list[int], param: str, context: bool = True) -> None:
    vocabulary, longest = served.engine.vocabulary, served.lm.config.context
    if not ids:
        raise Problem(400, f"{param} has no tokens; expected at least one.", param=param)
    wrong = next((token for token in ids if token >= vocabulary), None)
    if wrong is not None:
        raise Problem(400, f"{param} has the token id {wrong}; expected 0 to {vocabulary - 1}.", param=param)
    if context and len(ids) > longest:
        raise Problem(
            400,
            f"{param} has {len(ids):,} tokens; the model's context is {longest:,}.",
            param=param,
            code="context_length_exceeded",
        )


async def score_prompts(served: Served, plan: Plan) -> None:
    """Where `echo` and `logprobs` ask for them, the log-probabilities of the prompts."""
    count = plan.body.logprobs
    if not plan.body.echo or count is None:
        return
    for prompt in plan.prompts:
        _check_ids(served, prompt.ids, "prompt")
        ids = prompt.ids
        prompt.scores = await served.beside(lambda ids=ids: served.scorer.alternatives(ids, count))  # type: ignore[misc]


async def chunks(served: Served, plan: Plan, metrics: Metrics) -> AsyncIterator[tuple[Answer, dict[str, Any]]]:
    """All continuations' chunks as they come. Closing this ends what still runs."""
    answers = [Answer(plan, served.lm.tokenizer, number) for number in range(len(plan.prompts) * plan.best_of)]
    run = served.worker.open(plan.requests) if plan.requests else None
    metrics.prompt_tokens[served.name] += plan.prompt_tokens
    began, first = time.monotonic(), True
    try:
        for answer in answers:
            if plan.body.echo:
                yield answer, answer.opening()
            if run is None:
                yield answer, answer.close()
        if run is not None:
            async for number, event in run:
                if first:
                    metrics.first_token.observe(time.monotonic() - began)
                    first = False
                metrics.generated_tokens[served.name] += event.token is not None
                yield answers[number], answers[number].take(event)
    finally:
        if run is not None:
            run.close()


async def complete(served: Served, plan: Plan, metrics: Metrics) -> dict[str, Any]:
    """The whole answer: of each prompt the `n` best of `best_of`, by log-probability a token."""
    await score_prompts(served, plan)
    answers: dict[int, Answer] = {}
    async for answer, _ in chunks(served, plan, metrics):
        answers[answer.index] = answer
    groups = [answers[number] for number in sorted(answers)]
    choices: list[dict[str, Any]] = []
    for start in range(0, len(groups), plan.best_of):
        group = groups[start : start + plan.best_of]
        if plan.best_of > plan.n:
            group = sorted(group, key=lambda answer: -answer.total / max(1, answer.scored))[: plan.n]
        choices += [answer.whole(len(choices) + place) for place, answer in enumerate(group)]
    return {**_head(served, plan), "choices": choices, "usage": usage(plan, groups)}


async def stream(served: Served, plan: Plan, metrics: Metrics) -> AsyncIterator[bytes]:
    """The same as server-sent events. A failure under way is an event of its own, and the last."""
    await score_prompts(served, plan)
    head = json.dumps(_head(served, plan))[:-1]
    options = plan.body.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    tail = ', "usage": null}\n\n' if wants_usage else "}\n\n"
    answers: dict[int, Answer] = {}
    async for answer, piece in chunks(served, plan, metrics):
        answers[answer.index] = answer
        if piece["text"] or piece["finish_reason"] or piece["logprobs"] or piece.get("token_ids"):
            yield f'data: {head}, "choices": [{json.dumps(piece)}]{tail}'.encode()
    if wants_usage:
        counted = json.dumps(usage(plan, list(answers.values())))
        yield f'data: {head}, "choices": [], "usage": {counted}}}\n\n'.encode()
    yield DONE


def usage(plan: Plan, answers: list[Answer]) -> dict[str, int]:
    """Tokens in and out, those of texts that were not chosen included."""
    generated = sum(len(answer.tokens) for answer in answers)
    total = plan.prompt_tokens + generated
    return {"prompt_tokens": plan.prompt_tokens, "completion_tokens": generated, "total_tokens": total}


def _head(served: Served, plan: Plan) -> dict[str, Any]:
    return {"id": plan.identity, "object": "text_completion", "created": plan.created, "model": served.name}
