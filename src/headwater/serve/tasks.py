"""Embeddings, classes, blanks and tokens, computed in the model's second thread in short jobs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from headwater.display import counted
from headwater.finetuning import FineTuned, Occlusion, Prediction, Raw
from headwater.inference import evaluated, framed, require_context, require_ids
from headwater.inference import fill as fill_blanks
from headwater.reading import compose
from headwater.serve.completions import list_prompts
from headwater.serve.problems import Problem
from headwater.serve.schema import (
    ClassifyRequest,
    EmbeddingRequest,
    FillRequest,
    TokenizeRequest,
)
from headwater.serve.served import OpenRequest, Served, short_jobs
from headwater.tokenizer import TOKENIZER_CLASSES

T = TypeVar("T")
# The most rows, or answers to choose from, of a request to /classify, and of one with `explain`.
_MOST_ROWS, _MOST_EXPLAINED = 1_024, 16
_BYTES_OF_TOKEN = 3  # about, at the least, to guess how many tokens a row has
# Above this probability an answer is certain; if no word changes it by the rest, none alone does so visibly.
_SATURATED = 0.999
_PARTS = {"entail": "[premise, hypothesis]", "similarity": "[first, second]"}


def card(served: Served) -> dict[str, Any]:
    """Describe a model for /v1/models."""
    config, head = served.lm.config, served.fine_tuned
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "headwater",
        "root": None,
        "parent": None,
        "max_model_len": config.context,
        "context": config.context,
        "vocabulary": served.lm.tokenizer.vocabulary_size,
        "layers": config.layers,
        "heads": config.heads,
        "task": head.task if head else None,
        "labels": (head.labels.names or None) if head else None,
        "masked": config.is_masked,
        "language": served.language,
    }


async def embed(request: OpenRequest, body: EmbeddingRequest) -> dict[str, Any]:
    """/v1/embeddings: `LanguageModel.embed` of each text, of length 1 unless `normalize` is false."""
    served = request.model
    width = served.lm.config.output_width
    if body.dimensions is not None and body.dimensions != width:
        raise Problem(400, f"dimensions is not supported; this model's vectors have {width}.", param="dimensions")
    texts = await request.read(_read_texts, served, body.input)
    total = count_tokens(request, texts, served.lm.longest_text, "input")
    data: list[dict[str, Any]] = []
    for group in short_jobs(texts, len):
        embeddings = await request.model.compute(partial(_embeddings, served, group, body))
        data += [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(embeddings, len(data))
        ]
    usage = {"prompt_tokens": total, "completion_tokens": 0, "total_tokens": total}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def _read_texts(served: Served, texts: Any) -> list[list[int]]:
    """Return the ids of texts, or of lists of ids, as `LanguageModel.embed` reads them."""
    listed = list_prompts(texts, "input")
    if isinstance(listed[0], str):
        return served.lm.encode_texts(listed)
    for ids in listed:
        require_ids(ids, served.lm.config.vocabulary, "input")
    return listed


def _embeddings(served: Served, texts: list[list[int]], body: EmbeddingRequest) -> list[Any]:
    vectors = served.lm.embed_ids(texts, normalize=body.normalize is not False)
    if body.encoding_format == "base64":
        return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    return vectors.tolist()


def count_tokens(request: OpenRequest, texts: list[list[int]], longest: int, param: str) -> int:
    """Return the total number of tokens; raise ContextError or Problem for more than are allowed."""
    for ids in texts:
        require_context(len(ids), longest, param)
    total = sum(map(len, texts))
    request.require_tokens(total, param)
    request.count_tokens(read=total)
    return total


async def fill(request: OpenRequest, body: FillRequest) -> dict[str, Any]:
    """/v1/fill: the most probable tokens of each `[MASK]`."""
    lm = request.model.lm
    ids = await request.read(lambda: framed(lm.config, lm.tokenizer, compose(body.input)))
    request.count_tokens(read=len(ids))

    def filled() -> list[list[Any]]:
        with evaluated(lm.model) as model:
            return fill_blanks(model, lm.tokenizer, ids, body.top)

    positions = [position for position, token in enumerate(ids) if token == lm.tokenizer.mask]
    data = [
        {"position": position, "tokens": [candidate._asdict() for candidate in candidates]}
        for position, candidates in zip(positions, await request.model.compute(filled), strict=True)
    ]
    return {"object": "list", "model": request.model.name, "data": data}


async def tokenize(request: OpenRequest, body: TokenizeRequest) -> dict[str, Any]:
    """/tokenize, in vLLM's format. The names of special tokens are read as these tokens, as vLLM does."""
    served = request.model

    def tokenized() -> dict[str, Any]:
        tokenizer = served.lm.tokenizer
        tokens = tokenizer.encode(compose(body.prompt), allow_special=True)
        names = [tokenizer.vocabulary.tokens[token] for token in tokens] if body.return_token_strs else None
        context = served.lm.config.context
        return {"count": len(tokens), "max_model_len": context, "tokens": tokens, "token_strs": names}

    return await request.read(tokenized)


def tokenizer_info(served: Served) -> dict[str, Any]:
    """/tokenizer_info, in vLLM's format: the fields of tokenizer_config.json that clients read."""
    tokenizer = served.lm.tokenizer
    tokens = tokenizer.vocabulary.tokens
    roles = (tokenizer.start_of_text, tokenizer.end_of_text, tokenizer.roles.padding)
    start, end, padding = (None if index is None else tokens[index] for index in roles)
    return {
        "tokenizer_class": TOKENIZER_CLASSES[tokenizer.kind],
        "vocab_size": tokenizer.vocabulary_size,
        "model_max_length": served.lm.config.context,
        "bos_token": start,
        "eos_token": end,
        "pad_token": padding,
        "chat_template": None,
    }


async def classify(request: OpenRequest, body: ClassifyRequest) -> dict[str, Any]:
    """/classify: labels, probabilities and, with `explain`, how much each word changes them."""
    served = request.model
    if (head := served.fine_tuned) is None:
        raise Problem(400, f"The model {served.name!r} was not fine-tuned: it has no classes.", param="model")
    inputs = [body.input] if isinstance(body.input, str) else body.input
    if not inputs:
        raise Problem(400, "input is empty; expected at least one row.", param="input")
    if head.task != "classify" and isinstance(inputs[0], str):
        inputs = [[str(part) for part in inputs]]  # the parts of a single row
    rows = [Raw(_segments(head.task, row), None, number) for number, row in enumerate(inputs)]
    count, most = sum(map(_answers, rows)), _MOST_EXPLAINED if body.explain else _MOST_ROWS
    if count > most:
        items = "answers to choose from" if head.task == "choice" else "rows"
        raise Problem(400, f"input has {count:,} {items}; the most is {most:,}.", param="input")
    predictions = await _in_jobs(request, head, rows, lambda part: list(head.predict(part)))
    data = [await _classified(request, body, head, rows, prediction) for prediction in chain(*predictions)]
    return {"object": "list", "model": served.name, "task": head.task, "data": data}


async def _classified(
    request: OpenRequest, body: ClassifyRequest, head: FineTuned, rows: list[Raw], prediction: Prediction
) -> dict[str, Any]:
    """Return the answer for one row."""
    request.count_tokens(read=prediction.tokens)
    answer: dict[str, Any] = {
        "index": prediction.row,
        "label": prediction.label,
        "probabilities": prediction.probabilities,
        "tokens_cut": prediction.cut,
        "words": None,
    }
    if body.explain and prediction.label is not None:
        segments = rows[prediction.row].segments
        occlusion = await request.model.compute(partial(Occlusion, head, segments, prediction.output))
        parts = await _in_jobs(request, head, occlusion.rows, lambda part: head.probabilities(head.encode(part)))
        pieces = occlusion.pieces(np.concatenate(parts))
        answer["words"] = [piece.to_dict() for piece in pieces]
        likeliest = max((prediction.probabilities or {}).values(), default=0.0)
        changed = max((abs(piece.change) for piece in pieces), default=0.0)
        answer["saturated"] = head.labels.target != "score" and min(likeliest, 1 - changed) > _SATURATED
    return answer


async def _in_jobs(
    request: OpenRequest, head: FineTuned, rows: list[Raw], job: Callable[[list[Raw]], T]
) -> list[T]:
    """Run a job on a few rows at a time, in order, so that the jobs of other requests run in between."""
    context = head.base.config.context

    def tokens(row: Raw) -> int:
        """Guess how many tokens are computed for a row."""
        size = sum(len(part.encode(errors="replace")) for part in row.segments)
        return _answers(row) * min(context, size // _BYTES_OF_TOKEN + 1)

    return [await request.model.compute(partial(job, part)) for part in short_jobs(rows, tokens)]


def _answers(row: Raw) -> int:
    """Return how many texts the model reads for a row: of a choice, each answer with its question."""
    return max(1, len(row.segments) - 2)


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
