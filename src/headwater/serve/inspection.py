"""/inspect: return what the model computes at one position of a text."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.inference import (
    Floats,
    HeadSteps,
    Inside,
    Units,
    continue_greedily,
    look_inside,
    require_causal,
    stream_text,
    uniform,
)
from headwater.serve.completions import read_prompts
from headwater.serve.problems import Problem
from headwater.serve.schema import InspectRequest
from headwater.serve.served import OpenRequest, Served
from headwater.serve.tasks import count_tokens

_ATTENDED = 7  # tokens that a head is shown to attend to
_TOKENS = 5  # tokens whose logits a hidden unit changes most


async def inspect(request: OpenRequest, body: InspectRequest) -> dict[str, Any]:
    """Answer a request. Only the tokens up to the position have to fit the context."""
    served = request.model
    require_causal(served.lm.config)
    if served.lm.config.is_recurrent:
        raise Problem(400, f"The model {served.name!r} is recurrent: it has no attention.", param="model")
    prompts = await request.read(read_prompts, request, body.prompt, "prompt")
    ids = prompts[0].ids
    position = len(ids) - 1 if body.position is None else body.position
    if position >= len(ids):
        raise Problem(400, f"position is {position}; expected 0 to {len(ids) - 1}.", param="position")
    before = ids[: position + 1]
    count_tokens(request, [before], served.lm.config.context, "prompt")
    off = _checked(served, body.heads_off, "heads_off")
    head = next(iter(_checked(served, [body.head] if body.head else [], "head")), None)
    vocabulary = served.lm.tokenizer.vocabulary_size
    if body.target is not None and body.target >= vocabulary:
        raise Problem(400, f"target is {body.target}; expected 0 to {vocabulary - 1}.", param="target")
    target = ids[position + 1] if body.target is None and position + 1 < len(ids) else body.target

    def answer_at() -> dict[str, Any]:
        inside = look_inside(
            served.scorer.network, before, vocabulary, window=body.window, off=off, head=head, units=body.units
        )
        answer = _described(served, body, before, inside, target)
        if body.continuation:
            follow = continue_greedily(served.scorer.network, before, vocabulary, body.continuation, off)
            answer["continuation"] = {"token_ids": follow, "text": stream_text(served.lm.tokenizer, follow)}
        return answer

    answer = await request.model.compute(answer_at)
    names = [served.token_name(token) for token in ids]
    draw = None if body.seed is None else uniform(body.seed % 2**64, 0, body.step)
    return {
        "model": served.name,
        "position": position,
        "token_ids": ids,
        "tokens": names,
        **answer,
        "uniform": draw,
    }


def _checked(served: Served, heads: list[list[int]], name: str) -> list[tuple[int, int]]:
    layers, heads_of_each = served.lm.config.layers, served.lm.config.heads
    for layer, head in heads:
        if layer >= layers or head >= heads_of_each:
            expected = f"expected [0 to {layers - 1}, 0 to {heads_of_each - 1}]"
            raise Problem(400, f"{name} names [{layer}, {head}]; {expected}.", param=name)
    return [(layer, head) for layer, head in heads]


def _described(
    served: Served, body: InspectRequest, ids: list[int], inside: Inside, target: int | None
) -> dict[str, Any]:
    logits = inside.logits.astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    # Equal logits keep the order of their ids, as in sampling.
    top = np.argsort(-logits, axis=1, kind="stable")[:, : body.top]
    followed = int(top[-1, 0]) if target is None else target

    name = served.token_name
    return {
        "attention": _rounded(inside.attention, 5),
        "layers": [
            [
                {"token": int(token), "text": name(int(token)), "probability": round(float(row[token]), 6)}
                for token in tokens
            ]
            for tokens, row in zip(top, probabilities, strict=True)
        ],
        "target": {
            "token": followed,
            "text": name(followed),
            "ranks": [int(1 + (row > row[followed]).sum()) for row in logits],
            "probabilities": [round(float(row[followed]), 6) for row in probabilities],
        },
        "norms": _rounded(inside.norms, 4),
        "writes": _rounded(inside.writes, 4),
        "recent": _recent(ids, inside.recent) if body.window else None,
        "embeddings": {"token": _rounded(inside.token, 4), "position": _rounded(inside.position, 4)}
        if body.details
        else None,
        "logits": base64.b64encode(inside.logits[-1].astype("<f4").tobytes()).decode() if body.details else None,
        "head": _head(body.head, inside.head) if body.head and inside.head else None,
        "mlp": _mlp(served, body.head[0], inside.units, followed, name) if body.head and inside.units else None,
        "continuation": None,
    }


def _head(number: list[int], steps: HeadSteps) -> dict[str, Any]:
    last = len(steps.weights) - 1
    most = np.argsort(-steps.weights, kind="stable")[:_ATTENDED]
    shown = sorted({*most.tolist(), last})
    return {
        "layer": number[0],
        "head": number[1],
        "query": _rounded(steps.query, 4),
        "attended": [
            {
                "position": position,
                "key": _rounded(steps.keys[position], 4),
                "value": _rounded(steps.values[position], 4),
                "product": round(float(steps.products[position]), 4),
                "scaled": round(float(steps.products[position]) / len(steps.query) ** 0.5, 4),
                "weight": round(float(steps.weights[position]), 6),
            }
            for position in shown
        ],
        "others": round(max(0.0, 1 - float(steps.weights[shown].sum())), 6),
        "output": _rounded(steps.output, 4),
    }


def _mlp(served: Served, layer: int, units: Units, target: int, name: Callable[[int], str]) -> dict[str, Any]:
    def tokens(row: Floats) -> list[dict[str, Any]]:
        order = np.argsort(-row, kind="stable")[:_TOKENS]
        return [{"token": int(token), "text": name(int(token)), "logit": float(row[token])} for token in order]

    def described(index: int) -> dict[str, Any]:
        row = units.logits[index].astype(np.float64).round(4)
        values = {"input": units.inputs, "activation": units.activations, "length": units.lengths}
        return {
            "unit": int(units.numbers[index]),
            **{key: round(float(value[index]), 4) for key, value in values.items()},
            "target": float(row[target]),
            "raised": tokens(row),
            "lowered": [{**entry, "logit": -entry["logit"]} for entry in tokens(-row)],
        }

    return {
        "layer": layer,
        "hidden": units.hidden,
        "pre_norm": served.lm.config.norm == "pre",
        "units": [described(index) for index in range(len(units.numbers))],
    }


def _recent(ids: list[int], weights: Floats) -> dict[str, Any]:
    size = weights.shape[-1]
    data = np.rint(weights * 255).astype(np.uint8)
    return {"start": len(ids) - size, "size": size, "data": base64.b64encode(data.tobytes()).decode()}


def _rounded(values: Floats, digits: int) -> Any:
    return values.astype(np.float64).round(digits).tolist()
