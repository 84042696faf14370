"""/v1/completions: turn the API's parameters into the engine's requests, and its events into answers and chunks.

The names of special tokens in a prompt are plain text. A missing prompt is `<|endoftext|>`. `logprobs` are the
model's own, before temperature, filters and bias. With `echo` they begin with the prompt's; its first token has
none. `<|endoftext|>` ends a text: it is counted as a token and is not part of `text`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from headwater.errors import counted
from headwater.inference import Request, require_context, require_ids, stream_text
from headwater.serve.answers import Answer, CompletionPlan, Prompt
from headwater.serve.budget import Share
from headwater.serve.limits import Limits
from headwater.serve.metrics import Metrics
from headwater.serve.problems import Problem, encode
from headwater.serve.schema.requests import CompletionRequest
from headwater.serve.served import Served, short_jobs

DEFAULT_TOKENS = 16  # as in OpenAI's API
# Approximate bytes in an answer: of one log-probability, of the text of one token, of a choice without its text.
_VALUE_BYTES, _TOKEN_BYTES, _CHOICE_BYTES = 48, 8, 1_024
# Answers and chunks of more tokens are serialised in a thread.
_MANY = 64
DONE = b"data: [DONE]\n\n"


def plan_completion(served: Served, body: CompletionRequest, share: Share) -> CompletionPlan:
    """Check the parameters against the model. Raises Problem or HeadwaterError, which name the wrong parameter."""
    served.require_causal()
    if body.suffix:
        raise Problem(400, "suffix is not supported: this model only writes forwards.", param="suffix")
    if body.stream_options is not None and not body.stream:
        raise Problem(400, "stream_options is only allowed with stream.", param="stream_options")
    n = body.n or 1
    best_of = body.best_of or n
    if best_of < n:
        raise Problem(400, f"best_of is {best_of} and n is {n}; expected best_of ≥ n.", param="best_of")
    if body.stream and best_of > n:
        raise Problem(
            400, "best_of compares complete texts, so it cannot be combined with stream.", param="best_of"
        )
    prompts = read_prompts(served, body.prompt, "prompt")
    if body.max_tokens != 0 and len(prompts) * best_of > served.worker.capacity:
        asked = f"{counted(len(prompts), 'prompt')} with {counted(best_of, 'continuation')} each"
        raise Problem(400, f"{asked} at once; the most is {served.worker.capacity} in all.", param="prompt")
    options = _options(served, body, need_scores=best_of > n)
    context, vocabulary = served.lm.config.context, served.engine.vocabulary
    requests: list[Request] = []
    total = prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
    wanted = served.lm.request((), **options)
    for prompt in prompts:
        if body.max_tokens == 0 or body.echo or body.prompt_logprobs is not None:
            require_context(len(prompt.ids), context, "prompt")
        if body.max_tokens == 0:
            continue
        update: dict[str, Any] = {"prompt": tuple(prompt.ids)}
        if body.max_tokens is None or "max_tokens" not in body.model_fields_set:
            update["max_tokens"] = max(1, min(DEFAULT_TOKENS, context + 1 - len(prompt.ids)))
        first = wanted.model_copy(update=update)
        total += best_of * first.length(context, vocabulary)
        requests += [first.model_copy(update={"sample": sample}) for sample in range(best_of)]
    require_tokens(total, "max_tokens", share.limits)
    values = 0
    if body.logprobs is not None or body.prompt_logprobs is not None:
        values = max(body.logprobs or 0, body.prompt_logprobs or 0) + 2
    if body.echo or body.prompt_logprobs is not None:
        total += (best_of - 1) * prompt_tokens  # every continuation has the prompt
    size = (_VALUE_BYTES * values + _TOKEN_BYTES) * total + _CHOICE_BYTES * best_of * len(prompts)
    share.take(size, "prompt" if body.logprobs is None else "logprobs")
    return CompletionPlan(body, prompts, requests, best_of, n)


def require_tokens(total: int, param: str, limits: Limits) -> None:
    """Raise Problem for more tokens than one request may have."""
    if total > limits.tokens:
        raise Problem(400, f"{total:,} tokens in one request; the most is {limits.tokens:,}.", param=param)


def _options(served: Served, body: CompletionRequest, need_scores: bool) -> dict[str, Any]:
    stop = [body.stop] if isinstance(body.stop, str) else (body.stop or [])
    options: dict[str, Any] = {
        "max_tokens": body.max_tokens or None,
        "min_tokens": body.min_tokens,
        "stop": tuple(stop),
        "stop_tokens": tuple(body.stop_token_ids or ()),
        "ignore_end": body.ignore_eos,
        "seed": secrets.randbits(32) if body.seed is None else body.seed % 2**64,
        # A top-p of 0 leaves only the most probable token.
        "temperature": 0.0 if body.top_p == 0 else body.temperature,
        "top_p": body.top_p or None,
        "top_k": None if body.top_k is None else max(0, body.top_k),
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "bias": _bias(served, body.logit_bias or {}),
        "alternatives": 0 if need_scores and body.logprobs is None else body.logprobs,
    }
    return {name: value for name, value in options.items() if value is not None}


def _bias(served: Served, given: dict[str, float]) -> dict[int, float]:
    """Return the bias of single tokens."""
    vocabulary = served.engine.vocabulary
    bias: dict[int, float] = {}
    for name, value in given.items():
        token = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else -1
        if not 0 <= token < vocabulary:
            expected = f"expected an id from 0 to {vocabulary - 1}"
            raise Problem(400, f"logit_bias names the token {name[:40]!a}; {expected}.", param="logit_bias")
        bias[token] = float(value)
    return bias


def read_prompts(served: Served, given: Any, param: str) -> list[Prompt]:
    """Read texts or token ids as prompts; None is `<|endoftext|>`. The caller checks their lengths."""
    if given is None:
        given = ""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    if not given:
        raise Problem(400, f"{param} is empty; expected at least one.", param=param)
    prompts = []
    encoded = iter(served.lm.encode_prompts([one for one in given if isinstance(one, str)]))
    for one in given:
        if isinstance(one, str):
            prompts.append(Prompt(next(encoded), one))
            continue
        if not one:
            raise Problem(400, f"{param} has no tokens; expected at least one.", param=param)
        require_ids(one, served.engine.vocabulary, param)
        prompts.append(Prompt(list(one), stream_text(served.lm.tokenizer, one)))
    return prompts


async def score_prompts(served: Served, plan: CompletionPlan) -> None:
    """Compute the log-probabilities of the prompts, if the request asks for them, in short jobs."""
    counts = [plan.body.logprobs if plan.body.echo else None, plan.body.prompt_logprobs]
    asked = [count for count in counts if count is not None]
    if not asked:
        return
    for prompts in short_jobs(plan.prompts, lambda prompt: len(prompt.ids)):
        texts = [prompt.ids for prompt in prompts]
        found = await served.compute(partial(served.scorer.alternatives, texts, max(asked)))
        for prompt, scores in zip(prompts, found, strict=True):
            prompt.scores = scores


async def chunks(
    served: Served, plan: CompletionPlan, metrics: Metrics
) -> AsyncIterator[tuple[Answer, dict[str, Any]]]:
    """Yield the chunks of all continuations as they come. Closing the iterator cancels what still runs."""
    answers = [Answer(plan, served.lm.tokenizer, number) for number in range(len(plan.prompts) * plan.best_of)]
    run = served.worker.open(plan.requests) if plan.requests else None
    metrics.prompt_tokens[served.name] += plan.prompt_tokens
    began, first = time.monotonic(), True
    try:
        if plan.body.echo or plan.body.prompt_logprobs is not None:
            many = plan.prompt_tokens > _MANY
            for group in short_jobs(answers, lambda answer: len(answer.prompt.ids)):
                for answer, piece in await served.write(partial(_openings, group)) if many else _openings(group):
                    yield answer, piece
        if run is None:
            for answer in answers:
                yield answer, answer.close()
            return
        async for number, event in run:
            if first:
                metrics.first_token(served.name, time.monotonic() - began)
                first = False
            metrics.generated_tokens[served.name] += event.token is not None
            yield answers[number], answers[number].take(event)
    finally:
        if run is not None:
            run.close()


async def complete(served: Served, plan: CompletionPlan, metrics: Metrics) -> dict[str, Any]:
    """Return the whole answer: for each prompt the `n` best of `best_of`, by mean log-probability."""
    await score_prompts(served, plan)
    answers: dict[int, Answer] = {}
    async for answer, _ in chunks(served, plan, metrics):
        answers[answer.index] = answer
    groups = [answers[number] for number in sorted(answers)]
    chosen: list[Answer] = []
    for start in range(0, len(groups), plan.best_of):
        group = groups[start : start + plan.best_of]
        if plan.best_of > plan.n:
            group = sorted(group, key=lambda answer: -answer.total / max(1, answer.scored))[: plan.n]
        chosen += group
    counts = usage(plan, groups)
    few = counts["total_tokens"] <= _MANY
    choices = _choices(chosen) if few else await served.write(partial(_choices, chosen))
    return {**_head(served, plan), "choices": choices, "usage": counts}


def _openings(answers: list[Answer]) -> list[tuple[Answer, dict[str, Any]]]:
    return [(answer, answer.opening()) for answer in answers]


def _choices(answers: list[Answer]) -> list[dict[str, Any]]:
    return [answer.whole(index) for index, answer in enumerate(answers)]


async def stream(served: Served, plan: CompletionPlan, metrics: Metrics) -> AsyncIterator[bytes]:
    """Yield the answer as server-sent events. An error after the first event is the last event."""
    await score_prompts(served, plan)
    head = json.dumps(_head(served, plan))[:-1]
    options = plan.body.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    tail = ', "usage": null}\n\n' if wants_usage else "}\n\n"
    answers: dict[int, Answer] = {}
    async for answer, piece in chunks(served, plan, metrics):
        answers[answer.index] = answer
        content = ("text", "finish_reason", "logprobs", "token_ids", "prompt_logprobs")
        if any(piece.get(key) for key in content):
            many = len(piece.get("prompt_logprobs") or (piece["logprobs"] or {}).get("tokens", ())) > _MANY
            data = await served.write(partial(encode, piece)) if many else encode(piece)
            yield f'data: {head}, "choices": [{data.decode()}]{tail}'.encode()
    if wants_usage:
        counted = json.dumps(usage(plan, list(answers.values())))
        yield f'data: {head}, "choices": [], "usage": {counted}}}\n\n'.encode()
    yield DONE


def usage(plan: CompletionPlan, answers: list[Answer]) -> dict[str, int]:
    """Count tokens, including those of texts that `best_of` discards."""
    generated = sum(len(answer.tokens) for answer in answers)
    total = plan.prompt_tokens + generated
    return {"prompt_tokens": plan.prompt_tokens, "completion_tokens": generated, "total_tokens": total}


def _head(served: Served, plan: CompletionPlan) -> dict[str, Any]:
    return {"id": plan.identity, "object": "text_completion", "created": plan.created, "model": served.name}
