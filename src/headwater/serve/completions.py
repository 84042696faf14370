"""/v1/completions: turn the API's parameters into the engine's requests, and its events into answers and chunks.

The names of special tokens in a prompt are plain text. A prompt is read, and echoed, in Unicode's composed form. A
missing prompt is `<|endoftext|>`. `logprobs` are the model's own, before temperature, filters and bias. With
`echo` they begin with the prompt's; its first token has none. `<|endoftext|>` ends a text: it is counted as a
token and is not part of `text`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from headwater.display import counted
from headwater.inference import (
    Alternatives,
    Event,
    Request,
    TextStream,
    encode_prompts,
    require_context,
    require_ids,
    stream_text,
)
from headwater.reading import compose
from headwater.serve.answers import encode
from headwater.serve.problems import Problem
from headwater.serve.schema import CompletionRequest
from headwater.serve.served import OpenRequest, Served, short_jobs
from headwater.serve.threads import Worker

DEFAULT_TOKENS = 16  # as in OpenAI's API
MOST_PROMPTS = 2_048  # in one request, as in OpenAI's API
DONE = b"data: [DONE]\n\n"
# Keys of a choice; a chunk without any of them is not sent.
_CONTENT = ("text", "finish_reason", "logprobs", "token_ids", "prompt_token_ids")
_Scored = tuple[int, Alternatives | None, int]  # a token, its log-probabilities and where it begins in the text


@dataclass
class Prompt:
    """One prompt: its ids, the text that `echo` returns, and the log-probabilities of its tokens."""

    ids: list[int]
    text: str
    scores: list[Alternatives] = field(default_factory=list)


@dataclass
class CompletionPlan:
    """A checked request.

    requests: the continuations and their lengths, `n` for each prompt in turn, and their choices.
    """

    body: CompletionRequest
    prompts: list[Prompt]
    requests: list[tuple[Request, int]]
    choices: list[CompletionChoice]
    worker: Worker
    created: int = field(default_factory=lambda: int(time.time()))
    identity: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")

    @property
    def usage(self) -> dict[str, int]:
        """The number of tokens of prompts and answers."""
        prompt = sum(len(prompt.ids) for prompt in self.prompts)
        generated = sum(len(part.ids) for choice in self.choices for part in choice.parts)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def plan_completion(request: OpenRequest, body: CompletionRequest, worker: Worker) -> CompletionPlan:
    """Check the parameters against the model. Raises Problem or HeadwaterError, which name the wrong parameter."""
    served = request.model
    if body.suffix:
        raise Problem(400, "suffix is not supported: this model only writes forwards.", param="suffix")
    if body.stream_options is not None and not body.stream:
        raise Problem(400, "stream_options is only allowed with stream.", param="stream_options")
    n = body.n or 1
    if (body.best_of or n) != n:
        raise Problem(400, "best_of is not supported: ask for n continuations and compare them.", param="best_of")
    prompts = read_prompts(request, body.prompt, "prompt")
    if body.max_tokens != 0 and len(prompts) * n > worker.capacity:
        requested = f"{counted(len(prompts), 'prompt')} with {counted(n, 'continuation')} each"
        raise Problem(400, f"{requested} at once; the most is {worker.capacity} in all.", param="prompt")
    context, vocabulary = served.lm.config.context, served.lm.tokenizer.vocabulary_size
    wanted = served.lm.request((), **body.options())
    requests: list[tuple[Request, int]] = []
    total = prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
    for prompt in prompts:
        if body.max_tokens == 0 or body.echo:
            require_context(len(prompt.ids), context, "prompt")
        if body.max_tokens == 0:
            continue
        update: dict[str, Any] = {"prompt": tuple(prompt.ids)}
        if body.max_tokens is None or body.max_tokens == -1 or "max_tokens" not in body.model_fields_set:
            most = context if body.max_tokens == -1 else DEFAULT_TOKENS
            update["max_tokens"] = max(1, min(most, context + 1 - len(prompt.ids)))
        first = wanted.model_copy(update=update)
        length = first.length(context, vocabulary)
        total += n * length
        requests += [(first.model_copy(update={"sample": sample}), length) for sample in range(n)]
    if body.echo:
        total += (n - 1) * prompt_tokens  # every continuation has the prompt
    request.require_tokens(total, "max_tokens")
    request.require_tokens(total * (1 + (body.logprobs or 0)), "logprobs")
    choices = [CompletionChoice(served, body, prompts[number // n], number) for number in range(len(prompts) * n)]
    return CompletionPlan(body, prompts, requests, choices, worker)


def list_prompts(prompts: Any, param: str) -> list[Any]:
    """Return a text, token ids, or several of either as a list of prompts; None is an empty text."""
    prompts = "" if prompts is None else prompts
    listed = [prompts] if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)) else prompts
    if not 0 < len(listed) <= MOST_PROMPTS:
        expected = f"expected 1 to {MOST_PROMPTS:,}"
        raise Problem(400, f"{param} has {counted(len(listed), 'text')}; {expected}.", param=param)
    if not all(prompt or isinstance(prompt, str) for prompt in listed):
        raise Problem(400, f"{param} has no tokens; expected at least one.", param=param)
    return list(listed)


def read_prompts(request: OpenRequest, prompts: Any, param: str) -> list[Prompt]:
    """Read texts or token ids as prompts; None is `<|endoftext|>`. The caller checks each length."""
    served = request.model
    listed, tokenizer = list_prompts(prompts, param), served.lm.tokenizer
    if isinstance(listed[0], str):
        texts = [compose(text) for text in listed]
        return [Prompt(ids, text) for ids, text in zip(encode_prompts(tokenizer, texts), texts, strict=True)]
    request.require_tokens(sum(map(len, listed)), param)  # before they are decoded
    for ids in listed:
        require_ids(ids, served.lm.config.vocabulary, param)
    return [Prompt(list(ids), stream_text(tokenizer, ids)) for ids in listed]


class ChoicePart(NamedTuple):
    """What is added to a continuation: text, ids, and log-probabilities if its request asks for them."""

    text: str
    ids: list[int]
    scored: list[_Scored] | None


class CompletionChoice:
    """One continuation and its parts so far."""

    def __init__(self, served: Served, body: CompletionRequest, prompt: Prompt, index: int) -> None:
        self._served, self._body = served, body
        self.prompt, self.index = prompt, index
        self.finished: str | None = None
        self.parts: list[ChoicePart] = []

    def open(self) -> None:
        """Add the prompt, as `echo` asks for it."""
        prompt, stream, scored = self.prompt, TextStream(self._served.lm.tokenizer), []
        if self._body.logprobs is not None:
            for token, scores in zip(prompt.ids, [None, *prompt.scores], strict=True):
                scored.append((token, scores, min(stream.length, len(prompt.text))))
                stream.push(token)
        self.parts.append(ChoicePart(prompt.text, [], scored))

    def add_event(self, event: Event) -> None:
        """Add one event of the engine."""
        self.finished = None if event.finished is None else ("length" if event.finished == "length" else "stop")
        ids = [] if event.token is None else [event.token]
        start = len(self.prompt.text) + event.start
        self.parts.append(ChoicePart(event.text, ids, [(token, event.alternatives, start) for token in ids]))

    def close(self) -> None:
        """End an answer for which nothing is generated."""
        self.finished = "length"
        self.parts.append(ChoicePart("", [], None))

    def whole(self) -> dict[str, Any]:
        """Return the choice of an answer that is not streamed."""
        ids = [token for part in self.parts for token in part.ids]
        scored = [of_token for part in self.parts for of_token in part.scored or ()]
        return self._content(ChoicePart("".join(part.text for part in self.parts), ids, scored), is_first=True)

    def chunk(self) -> bytes:
        """Return the last part for a stream; empty if it adds nothing."""
        content = self._content(self.parts[-1], is_first=len(self.parts) == 1)
        return encode(content) if any(content.get(key) for key in _CONTENT) else b""

    def _content(self, part: ChoicePart, *, is_first: bool) -> dict[str, Any]:
        content: dict[str, Any] = {"index": self.index, "text": part.text, "logprobs": None}
        content["finish_reason"] = self.finished
        if self._body.logprobs is not None and part.scored is not None:
            content["logprobs"] = self._logprobs(part.scored)
        if self._body.return_token_ids:
            content |= {"prompt_token_ids": self.prompt.ids} if is_first else {}
            content["token_ids"] = part.ids
        return content

    def _logprobs(self, scored: Sequence[_Scored]) -> dict[str, list[Any]]:
        name, count = self._served.token_name, self._body.logprobs or 0
        tops = [None if scores is None else _with_chosen(token, scores, count) for token, scores, _ in scored]
        logprobs: dict[str, list[Any]] = {
            "tokens": [name(token) for token, _, _ in scored],
            "token_logprobs": [None if scores is None else scores.log_probability for _, scores, _ in scored],
            "top_logprobs": [top and {name(token): value for token, value in top} for top in tops],
            "text_offset": [offset for _, _, offset in scored],
        }
        if self._body.return_token_ids:
            logprobs["top_token_ids"] = [top and {name(token): token for token, _ in top} for top in tops]
        return logprobs


def _with_chosen(token: int, scores: Alternatives, count: int) -> list[tuple[int, float]]:
    """Return the `count` likeliest tokens, and `token` itself if it is not among them."""
    top = scores.likeliest[:count]
    return top if token in dict(top) else [*top, (token, scores.log_probability)]


async def _planned(request: OpenRequest, body: CompletionRequest) -> CompletionPlan:
    """Return the plan, with the log-probabilities of the prompts if the request asks for them, in short jobs."""
    plan = await request.read(plan_completion, request, body, await request.model.start_engine())
    most = body.logprobs
    if most is None or not body.echo:
        return plan
    for prompts in short_jobs(plan.prompts, lambda prompt: len(prompt.ids)):
        texts = [prompt.ids for prompt in prompts]
        scores = await request.model.compute(partial(request.model.scorer.alternatives, texts, most))
        for prompt, of_prompt in zip(prompts, scores, strict=True):
            prompt.scores = of_prompt
    return plan


async def updated_choices(request: OpenRequest, plan: CompletionPlan) -> AsyncIterator[CompletionChoice]:
    """Yield each choice that has a new part, as they come. Closing the iterator cancels what still runs."""
    with plan.worker.open(plan.requests) as events:
        request.count_tokens(read=plan.usage["prompt_tokens"])
        began, is_first = time.monotonic(), True
        generated = request.metrics.generated_tokens.labels(*request.labels)
        if plan.body.echo:
            for some in short_jobs(plan.choices, lambda choice: len(choice.prompt.ids)):
                await asyncio.to_thread(list, map(CompletionChoice.open, some))
                for choice in some:
                    yield choice
        if not plan.requests:
            for choice in plan.choices:
                choice.close()
                yield choice
        async for number, event in events:
            if is_first:
                request.metrics.first_token.labels(*request.labels).observe(time.monotonic() - began)
                is_first = False
            generated.inc(event.token is not None)
            plan.choices[number].add_event(event)
            yield plan.choices[number]


async def complete(request: OpenRequest, body: CompletionRequest) -> dict[str, Any]:
    """Return the whole answer: `n` continuations of each prompt."""
    plan = await _planned(request, body)
    async for _ in updated_choices(request, plan):
        pass
    choices = await asyncio.to_thread(lambda: [choice.whole() for choice in plan.choices])
    return {**_head(request.model, plan), "choices": choices, "usage": plan.usage}


async def stream(request: OpenRequest, body: CompletionRequest) -> AsyncIterator[bytes]:
    """Yield the answer as server-sent events. An error after the first event is the last event."""
    plan = await _planned(request, body)
    head = b"data: " + json.dumps(_head(request.model, plan))[:-1].encode()
    options = plan.body.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    tail = b', "usage": null}\n\n' if wants_usage else b"}\n\n"
    async for choice in updated_choices(request, plan):
        is_long = len(choice.parts[-1].scored or ()) > 1  # a prompt
        if chunk := await asyncio.to_thread(choice.chunk) if is_long else choice.chunk():
            yield b'%b, "choices": [%b]%b' % (head, chunk, tail)
    if wants_usage:
        yield b'%b, "choices": [], "usage": %b}\n\n' % (head, json.dumps(plan.usage).encode())
    yield DONE


def _head(served: Served, plan: CompletionPlan) -> dict[str, Any]:
    return {"id": plan.identity, "object": "text_completion", "created": plan.created, "model": served.name}
