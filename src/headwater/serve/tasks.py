"""Embeddings, scores, classes and tokens, computed in the model's second thread in short jobs."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any

from headwater.display import counted
from headwater.errors import ContextError
from headwater.finetuning import FineTuned, Prediction, Raw, explain
from headwater.inference import evaluated, framed, require_context
from headwater.inference import fill as fill_blanks
from headwater.serve.completions import Prompt, read_prompts, require_tokens
from headwater.serve.problems import Problem
from headwater.serve.schema import (
    ClassifyRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    FillRequest,
    ScoreRequest,
    TokenizeRequest,
)
from headwater.serve.served import OpenRequest, Served, short_jobs
from headwater.tokenizer import MASK, TOKENIZER_CLASSES, Tokenizer

# The most rows of a request to /score or /classify, and of one with `explain`.
_MOST_ROWS, _MOST_EXPLAINED = 1_024, 16
_CHARACTERS_PER_TOKEN = 64  # that take as long to encode as a token to compute
_BYTES_OF_TOKEN = 3  # about, at the least, to guess how many tokens a row has
# Bytes of one number of a vector in an answer, about.
_NUMBER_BYTES, _BASE64_BYTES = 20, 6
# Approximate bytes in an answer: of a token's id, of an id with its name, and of an entry with several fields.
_ID_BYTES, _NAMED_BYTES, _ENTRY_BYTES = 8, 24, 64
_TASK_TOKENS = 3  # of a pair: start, delimiter and extract
# Above this probability an answer is certain; if no word changes it by the rest, none alone does so visibly.
_SATURATED = 0.999
EncodedPair = tuple[list[int], list[int]]  # context and continuation
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
    prompts = await request.read(lambda: read_prompts(served, body.input, "input"))
    total = count_tokens(request, prompts, "input")
    numbers = _BASE64_BYTES if body.encoding_format == "base64" else _NUMBER_BYTES
    request.reserve(len(prompts) * width * numbers, "input")
    data: list[dict[str, Any]] = []
    for group in short_jobs(prompts, lambda prompt: len(prompt.ids)):
        embeddings = await request.model.compute(
            partial(_embeddings, served, [prompt.ids for prompt in group], body)
        )
        data += [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(embeddings, len(data))
        ]
    usage = {"prompt_tokens": total, "completion_tokens": 0, "total_tokens": total}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def _embeddings(served: Served, texts: list[list[int]], body: EmbeddingRequest) -> list[Any]:
    vectors = served.lm.embed_ids(texts, normalize=body.normalize is not False)
    if body.encoding_format == "base64":
        return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    return vectors.tolist()


def count_tokens(request: OpenRequest, prompts: list[Prompt], param: str) -> int:
    """Return the total number of tokens; raise ContextError or Problem for more than are allowed."""
    for prompt in prompts:
        require_context(len(prompt.ids), request.model.lm.config.context, param)
    total = sum(len(prompt.ids) for prompt in prompts)
    require_tokens(total, param, request.limits)
    request.count_tokens(read=total)
    return total


async def fill(request: OpenRequest, body: FillRequest) -> dict[str, Any]:
    """/v1/fill: the most probable tokens of each `[MASK]`."""
    served = request.model
    if not served.lm.config.is_masked:
        raise Problem(400, f"The model {served.name!r} is not masked: it does not fill blanks.", param="model")
    vocabulary = served.lm.tokenizer.vocabulary_size
    if body.top > vocabulary:
        raise Problem(400, f"top is {body.top}; expected 1 to {vocabulary}.", param="top")
    request.reserve(body.input.count(MASK) * body.top * _ENTRY_BYTES, "top")
    text, ids = await request.read(partial(_framed, served, body.input))
    require_context(len(ids), served.lm.config.context, "input")
    request.count_tokens(read=len(ids))
    blanks = await request.model.compute(partial(_filled, served, text, body.top))
    positions = [position for position, token in enumerate(ids) if token == served.lm.tokenizer.mask]
    data = [
        {"position": position, "tokens": [candidate._asdict() for candidate in candidates]}
        for position, candidates in zip(positions, blanks, strict=True)
    ]
    return {"object": "list", "model": served.name, "data": data}


def _framed(served: Served, given: str) -> tuple[str, list[int]]:
    """Return a text as it is read, and its ids with those around them."""
    text = served.lm.as_read(given)
    with evaluated(served.lm.model) as model:
        return text, framed(model, served.lm.tokenizer, text, allow_special=True)


def _filled(served: Served, text: str, top: int) -> list[list[Any]]:
    with evaluated(served.lm.model) as model:
        return fill_blanks(model, served.lm.tokenizer, text, top)


async def tokenize(request: OpenRequest, body: TokenizeRequest) -> dict[str, Any]:
    """/tokenize, in vLLM's format. The names of special tokens are read as these tokens, as vLLM does."""
    served = request.model

    def tokenized() -> dict[str, Any]:
        tokenizer = served.lm.tokenizer
        tokens = tokenizer.encode(served.lm.as_read(body.prompt), allow_special=True)
        request.reserve(len(tokens) * (_NAMED_BYTES if body.return_token_strs else _ID_BYTES), "prompt")
        names = [tokenizer.vocabulary.tokens[token] for token in tokens] if body.return_token_strs else None
        context = served.lm.config.context
        return {"count": len(tokens), "max_model_len": context, "tokens": tokens, "token_strs": names}

    return await request.read(tokenized)


async def detokenize(request: OpenRequest, body: DetokenizeRequest) -> dict[str, Any]:
    """/detokenize, in vLLM's format."""

    def text() -> dict[str, Any]:
        request.reserve(len(body.tokens) * request.model.longest_token, "tokens")
        return {"prompt": request.model.lm.tokenizer.decode(body.tokens)}

    return await request.read(text)


def tokenizer_info(served: Served) -> dict[str, Any]:
    """/tokenizer_info, in vLLM's format: the fields of tokenizer_config.json that clients read."""
    tokenizer = served.lm.tokenizer
    tokens = tokenizer.vocabulary.tokens
    roles = (tokenizer.start_of_text, tokenizer.end_of_text, tokenizer.padding)
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


async def score(request: OpenRequest, body: ScoreRequest) -> dict[str, Any]:
    """/score: pair one text with each of the others, or two lists text by text."""
    served = request.model
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(first) == 1:
        first = first * len(second)
    if not second or len(first) != len(second):
        raise Problem(
            400,
            f"text_1 has {counted(len(first), 'text')} and text_2 {len(second):,}; "
            "expected the same number, at least one.",
            param="text_2",
        )
    _require_rows(len(second), _MOST_ROWS, "text_2")
    head = served.fine_tuned
    if head is None:
        served.require_causal()
    elif head.labels.target != "score" or head.task != "similarity":
        raise Problem(400, f"The model {served.name!r} does not score pairs: use /classify.", param="model")
    request.reserve(len(second) * _ENTRY_BYTES, "text_2")
    pairs, encoded = await request.read(partial(_read_pairs, request, first, second))
    total = sum(len(context) + len(rest) for context, rest in encoded)
    values = _log_probabilities(request, encoded) if head is None else _similarities(request, head, pairs)
    return {
        "id": f"score-{secrets.token_hex(12)}",
        "object": "list",
        "created": int(time.time()),
        "model": served.name,
        "meaning": "log_probability" if head is None else "similarity",
        "data": [
            {"index": index, "object": "score", **value}
            for index, value in enumerate([value async for value in values])
        ],
        "usage": {"prompt_tokens": total, "completion_tokens": 0, "total_tokens": total},
    }


async def _log_probabilities(request: OpenRequest, pairs: Sequence[EncodedPair]) -> AsyncIterator[dict[str, Any]]:
    """Yield the log-probability of each second text after the first, and whether it is the most probable one."""
    request.count_tokens(read=sum(len(context) + len(rest) for context, rest in pairs))
    for jobs in short_jobs(pairs, lambda pair: len(pair[0]) + len(pair[1])):
        scores = await request.model.compute(partial(request.model.scorer.score_ids, jobs))
        for value, greedy in scores:
            yield {"score": value, "is_greedy": greedy}


async def _similarities(
    request: OpenRequest, head: FineTuned, pairs: Sequence[tuple[str, str]]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the score that a model fine-tuned for it gives each pair; None for a pair without text."""
    rows = [Raw(pair, None, number) for number, pair in enumerate(pairs)]
    async for prediction in _predicted(request, head, rows):
        yield {"score": prediction.label if isinstance(prediction.label, float) else None}


def _read_pairs(
    request: OpenRequest, first: Sequence[str], second: Sequence[str]
) -> tuple[list[tuple[str, str]], list[EncodedPair]]:
    """Return pairs of texts as they are read, and their ids; one text may be in many pairs.

    Raises ContextError or Problem for more tokens than are allowed.
    """
    served = request.model
    as_read = {text: served.lm.as_read(text) for text in {*first, *second}}
    pairs = [(as_read[one], as_read[other]) for one, other in zip(first, second, strict=True)]
    if served.fine_tuned is None:
        encode, most = served.scorer.encode_pairs, served.lm.config.context + 1  # the last token is not read
    else:
        encode, most = partial(_encode_texts, served.lm.tokenizer), served.lm.config.context - _TASK_TOKENS
    encoded: list[EncodedPair] = []
    total = 0
    # A few at a time: one long first text may be paired with a thousand others.
    for group in short_jobs(pairs, lambda pair: sum(map(len, pair)) // _CHARACTERS_PER_TOKEN):
        for context, rest in encode(group):
            length = len(context) + len(rest)
            total += length
            require_tokens(total, "text_2", request.limits)
            if length > most:
                raise ContextError(
                    f"pair {len(encoded)} has {counted(length, 'token')}, more than the model's context",
                    expected=f"at most {most:,}",
                    param="text_2",
                )
            encoded.append((context, rest))
    return pairs, encoded


def _encode_texts(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[EncodedPair]:
    ids = tokenizer.encode_batch([text for pair in pairs for text in pair], None)
    return list(zip(ids[::2], ids[1::2], strict=True))


async def classify(request: OpenRequest, body: ClassifyRequest) -> dict[str, Any]:
    """/classify: labels, probabilities and, with `explain`, how much each word changes them."""
    served = request.model
    if (head := served.fine_tuned) is None:
        raise Problem(400, f"The model {served.name!r} was not fine-tuned: it has no classes.", param="model")
    given = [body.input] if isinstance(body.input, str) else body.input
    if not given:
        raise Problem(400, "input is empty; expected at least one row.", param="input")
    if not isinstance(given[0], str) and len(given[0]) == 2:
        head = head.for_task("entail")
    if head.task != "classify" and isinstance(given[0], str):
        given = [[str(part) for part in given]]  # the parts of a single row
    _require_rows(len(given), _MOST_EXPLAINED if body.explain else _MOST_ROWS, "input")
    rows = [Raw(_segments(head.task, row), None, number) for number, row in enumerate(given)]
    row_bytes = _ENTRY_BYTES * (2 + len(head.labels.names or ()))
    characters = sum(len(part) for row in rows for part in row.segments)
    request.reserve(len(rows) * row_bytes + (_ENTRY_BYTES * characters if body.explain else 0), "input")
    data = []
    async for prediction in _predicted(request, head, rows):
        segments = rows[prediction.row].segments
        answer: dict[str, Any] = {
            "index": prediction.row,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
            "tokens_cut": prediction.cut,
            "words": None,
        }
        if body.explain and prediction.label is not None:
            output = prediction.output
            pieces = await request.model.compute(
                lambda segments=segments, output=output: explain(head, segments, output)  # type: ignore[misc]
            )
            answer["words"] = [piece.to_dict() for piece in pieces]
            likeliest = max((prediction.probabilities or {}).values(), default=0.0)
            changed = max((abs(piece.change) for piece in pieces), default=0.0)
            answer["saturated"] = head.labels.target != "score" and min(likeliest, 1 - changed) > _SATURATED
        data.append(answer)
    return {"object": "list", "model": served.name, "task": head.task, "data": data}


async def _predicted(request: OpenRequest, head: FineTuned, rows: Iterable[Raw]) -> AsyncIterator[Prediction]:
    """Predict in order, a few rows a job, so that the jobs of other requests run in between."""
    context = head.model.model.config.context

    def tokens(row: Raw) -> int:
        """Guess how many tokens are computed for a row; of a choice, each answer is read with its question."""
        answers = max(1, len(row.segments) - 2)
        return answers * min(
            context, sum(len(part.encode(errors="replace")) for part in row.segments) // _BYTES_OF_TOKEN + 1
        )

    for part in short_jobs(list(rows), tokens):
        for prediction in await request.model.compute(lambda part=part: list(head.predict(part))):  # type: ignore[misc]
            request.count_tokens(read=prediction.tokens)
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
