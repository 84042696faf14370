"""Traps of the official files: each on the real file, where it is there, and on made-up lines of the same form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.evaluation import (
    FUNCTION_WORDS,
    ContinuationRequest,
    Example,
    Generated,
    GenerationRequest,
    RequestEncoder,
    Scored,
    all_tasks,
)
from headwater.evaluation.tasks.lambada import first_word
from headwater.tokenizer import Tokenizer

WORDS = ["Ananda", "Dizzy", "Tessa", "Will", "donor", "Island", "thesis", "anvil"]


def test_the_stop_word_filter_leaves_every_other_word_possible() -> None:
    assert not any(map(FUNCTION_WORDS.__contains__, WORDS))
    assert all(
        map(FUNCTION_WORDS.__contains__, ["the", "I", "don't", "won’t", "she'll", "n't", "it's", "themselves"])
    )
    encoder = RequestEncoder(Tokenizer.load("gpt2"), 1024)
    assert all(map(reachable(encoder), WORDS))


def test_only_function_words_of_the_real_file_are_out_of_reach(data: Path) -> None:
    encoder = RequestEncoder(Tokenizer.load("gpt2"), 1024)
    path = data / "eval-zeroshot" / "lambada" / "lambada_test_openai.jsonl"
    words = [json.loads(line)["text"].rpartition(" ")[2] for line in path.read_text(encoding="utf-8").splitlines()]
    assert {"Ananda", "Dizzy", "Tessa"} <= set(words)
    out_of_reach = [word for word in words if not reachable(encoder)(word)]
    assert len(out_of_reach) < 60
    # Three answers are two words, as the file has a line break before the last one ("of\n\nPower").
    assert all(first_word(word) in FUNCTION_WORDS for word in out_of_reach)


def reachable(encoder: RequestEncoder) -> Callable[[str], bool]:
    """Whether a model that is sure of a word gets it right through the filter."""
    task = all_tasks()["lambada.openai.whole-word.stop-words"]

    def is_right(word: str) -> bool:
        example = Example("1", {"context": "He looked at", "word": f" {word}"}, text=f"He looked at {word}")
        asked: list[Any] = list(task.requests(example, encoder))
        answers: list[Any] = []
        target = asked[0].continuation
        other = encoder.encode(" zebra")
        while asked:
            for request in asked:
                if isinstance(request, ContinuationRequest):
                    scores = tuple(-0.1 for _ in target)
                    answers.append(Scored(scores, tuple(True for _ in target)))
                else:
                    answers.append(_sure(request, encoder, target, other))
            asked = list(task.further(example, answers, encoder))
        return bool(task.score(example, answers, encoder)["accuracy"])

    return is_right


def _sure(
    request: GenerationRequest, encoder: RequestEncoder, target: tuple[int, ...], other: tuple[int, ...]
) -> Generated:
    """The generation of a model that continues with `target` and a full stop, or else with `other`."""
    if request.max_tokens == 1:
        tokens = target[:1] if target[0] not in request.excluded else other[:1]
    else:
        tokens = (*target[1:], *encoder.encode("."))
    return Generated(encoder.tokenizer.decode(tokens), tokens, tuple(-0.1 for _ in tokens))
