"""Embeddings, scores and classes. Each call runs in the second thread."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

from headwater.errors import HeadwaterError
from headwater.finetune.examples import Raw
from headwater.finetune.explain import explain
from headwater.finetune.fine_tuned import FineTuned, Prediction
from headwater.serve.completions import Prompt, read_prompts
from headwater.serve.limits import Limits
from headwater.serve.problems import Problem, refused
from headwater.serve.schema import ClassifyRequest, EmbeddingRequest, ScoreRequest
from headwater.serve.served import Served
from headwater.wording import counted

# Rows of /score and /classify in one request, and of those that are to be explained.
_MOST_ROWS, _MOST_EXPLAINED = 1_024, 16
_ROWS_TOGETHER = 16
_PARTS = {"entail": "[premise, hypothesis]", "similarity": "[first, second]"}


def card(served: Served) -> dict[str, Any]:
    """A model as /v1/models shows it."""
    config, head = served.lm.config, served.fine_tuned
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "headwater",
        "context": config.context,
        "vocabulary": served.engine.vocabulary,
        "layers": config.layers,
        "heads": config.heads,
        "task": head.task if head else None,
        "labels": (head.labels.names or None) if head else None,
    }


async def embed(served: Served, body: EmbeddingRequest, limits: Limits) -> dict[str, Any]:
    """/v1/embeddings."""
    if body.dimensions is not None and body.dimensions != served.lm.config.width:
        width = served.lm.config.width
        raise Problem(400, f"dimensions is not supported; this model's vectors have {width}.", param="dimensions")
    prompts = await asyncio.to_thread(read_prompts, served, body.input, "input")
    total = count_tokens(served, prompts, "input", limits)
    data = []
    for index, prompt in enumerate(prompts):
        ids = prompt.ids
        vector = await served.beside(lambda ids=ids: served.scorer.mean_state(ids))  # type: ignore[misc]
        if body.encoding_format == "base64":
            embedding: Any = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        else:
            embedding = [float(value) for value in vector]
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    usage = {"prompt_tokens": total, "completion_tokens": 0, "total_tokens": total}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def count_tokens(served: Served, prompts: list[Prompt], param: str, limits: Limits) -> int:
    """Return the number of tokens in all; raises Problem for more than the model or `limits` allow."""
    context = served.lm.config.context
    longest = max(len(prompt.ids) for prompt in prompts)
    if longest > context:
        raise Problem(
            400,
            f"{param} has {longest:,} tokens; the model's context is {context:,}.",
            param=param,
            code="context_length_exceeded",
        )
    total = sum(len(prompt.ids) for prompt in prompts)
    if total > limits.tokens:
        raise Problem(400, f"{total:,} tokens in one request; the most is {limits.tokens:,}.", param=param)
    return total


async def score(served: Served, body: ScoreRequest, limits: Limits) -> dict[str, Any]:
    """/score: one text with each, or text by text."""
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(first) == 1:
        first = first * len(second)
    if not second or len(first) != len(second):
        raise Problem(
            400,
            f"text_1 has {counted(len(first), 'text')} and text_2 {len(second):,}; expected as many.",
            param="text_2",
        )
    _require_rows(len(second), _MOST_ROWS, "text_2")
    pairs = list(zip(first, second, strict=True))
    head = served.fine_tuned
    if head is None:
        requests = []
        for pair in pairs:
            try:
                requests.append(await asyncio.to_thread(served.scorer.encode_pair, *pair))
            except HeadwaterError as error:
                raise refused(error, "text_2") from None
        total = sum(len(context) + len(rest) for context, rest in requests)
        if total > limits.tokens:
            raise Problem(400, f"{total:,} tokens in one request; the most is {limits.tokens:,}.", param="text_2")
        found = await served.beside(lambda: served.scorer.score_ids(requests))
        data = [{"index": i, "score": value, "is_greedy": greedy} for i, (value, greedy) in enumerate(found)]
        return {"object": "list", "model": served.name, "meaning": "log_probability", "data": data}
    if head.labels.target != "score":
        raise Problem(400, f"{served.name!r} gives classes, not scores: use /classify.", param="model")
    rows = [Raw(pair, None, number) for number, pair in enumerate(pairs)]
    data = [{"index": p.row, "score": float(p.label)} async for p in _predicted(served, head, rows)]
    return {"object": "list", "model": served.name, "meaning": "similarity", "data": data}


async def classify(served: Served, body: ClassifyRequest) -> dict[str, Any]:
    """/classify: labels, probabilities, and where asked for the words that moved them."""
    head = served.require_head()
    given = [body.input] if isinstance(body.input, str) else body.input
    if not given:
        raise Problem(400, "input is empty; expected at least one row.", param="input")
    if head.task != "classify" and isinstance(given[0], str):
        given = [[str(part) for part in given]]  # one row's parts
    _require_rows(len(given), _MOST_EXPLAINED if body.explain else _MOST_ROWS, "input")
    rows = [Raw(_segments(head.task, row), None, number) for number, row in enumerate(given)]
    data = []
    async for prediction in _predicted(served, head, rows):
        segments = rows[prediction.row].segments
        found: dict[str, Any] = {
            "index": prediction.row,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
            "words": None,
        }
        if body.explain:
            values = list(prediction.probabilities.values())
            output = values.index(max(values))
            pieces = await served.beside(
                lambda segments=segments, output=output: explain(head, segments, output)  # type: ignore[misc]
            )
            found["words"] = [{"segment": p.segment, "text": p.text, "change": round(p.change, 6)} for p in pieces]
        data.append(found)
    return {"object": "list", "model": served.name, "task": head.task, "data": data}


async def _predicted(served: Served, head: FineTuned, rows: list[Raw]) -> AsyncIterator[Prediction]:
    """Predictions in order, some rows at a time: others get their turn between, and who left keeps no thread."""
    for start in range(0, len(rows), _ROWS_TOGETHER):
        part = rows[start : start + _ROWS_TOGETHER]
        for prediction in await served.beside(lambda part=part: list(head.predict(part))):  # type: ignore[misc]
            yield prediction


def _segments(task: str, row: Any) -> tuple[str, ...]:
    parts = [row] if isinstance(row, str) else row
    if task == "classify":
        right, expected = len(parts) == 1, "one text a row"
    else:
        right = len(parts) == 2 if task in _PARTS else len(parts) >= 4
        expected = f"{_PARTS.get(task, '[context, question, answer, answer, …]')} a row"
    if not right or (task == "choice" and not all(part.strip() for part in parts[2:])):
        raise Problem(
            400, f"input has a row of {counted(len(parts), 'text')}; expected {expected}.", param="input"
        )
    return tuple(parts)


def _require_rows(count: int, most: int, param: str) -> None:
    if count > most:
        raise Problem(400, f"{param} has {count:,} rows; the most is {most:,}.", param=param)
