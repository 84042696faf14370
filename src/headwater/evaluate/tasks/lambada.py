"""LAMBADA (Paperno et al. 2016): the last word of a passage, in every reading that goes by that name.

Texts: `openai` is OpenAI's own file, `original` the authors' tokenised and lower-cased one as it stands, and
`original.detokenized` that one through the de-tokenizer. Readings of the answer:

`last-token`            its last token alone, given all before it, the word's own first tokens included;
`whole-word`            all its tokens, greedy (what lm-evaluation-harness calls `lambada_openai`);
`whole-word.stop-words` the same with function words barred as the first token, GPT-2's approximation of "must
                        be able to end the sentence" (Radford et al. 2019, section 3.3), which gave table 3.

Perplexity is e to the mean negative log-probability of what is scored, an answer each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluate.detokenize import LAMBADA
from headwater.evaluate.lines import json_lines
from headwater.evaluate.places import Place, Source
from headwater.evaluate.protocols import (
    Answer,
    Example,
    Figure,
    Generated,
    Generation,
    Metric,
    Request,
    Scored,
    Task,
    mean_figure,
)
from headwater.evaluate.reader import Reader
from headwater.storage import read_text
from headwater.tokenizer import Tokenizer

Text = Literal["openai", "original", "original.detokenized"]
Reading = Literal["last-token", "whole-word", "whole-word.stop-words"]

_OPENAI = Source(
    "test",
    names=("lambada_test_openai.jsonl", "lambada_test.jsonl"),
    where="OpenAI's de-tokenized file, lambada_test.jsonl of the GPT-2 release",
)
_ORIGINAL = Source(
    "test",
    names=("lambada_test_plain_text.txt",),
    where="LAMBADA's own distribution, Zenodo record 2630551",
)

# Function words of English: pronouns, determiners, prepositions, conjunctions, auxiliaries, and the particles
# and adverbs that behave like them. The papers name no list; this one is written from the word classes.
_WORDS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
she her hers herself it its itself they them their theirs themselves one who whom whose which what
that this these those a an the some any no each every either neither both all few many more most
other another such own same of in on at by to from with without into onto upon about above below
over under after before during between among through against until till since for off out up down
near beside behind across along around and or but nor so yet if because as than while when where why
how whether though although unless am is are was were be been being have has had having do does did
doing will would shall should can could may might must ought not never only just very too also then
there here again once further now even still s t d ll m o re ve don doesn didn isn aren wasn weren
hasn haven hadn won wouldn shouldn couldn mustn ain
"""
FUNCTION_WORDS = frozenset(_WORDS.split())


class Lambada(Task):
    """The last word of each passage."""

    benchmark = "lambada"

    def __init__(self, text: Text, reading: Reading) -> None:
        self.text, self.reading = text, reading
        self.protocol = f"lambada.{text}.{reading}"
        self.summary = f"last word of a passage ({text} text), {reading.replace('.', ', ')}"
        self.sources = (_OPENAI if text == "openai" else _ORIGINAL,)
        accuracy, perplexity = Metric("accuracy"), Metric("perplexity", higher_is_better=False)
        self.metrics = (accuracy,) if reading == "whole-word.stop-words" else (accuracy, perplexity)

    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """One passage a line."""
        texts = _read(places["test"], self.text)
        examples = []
        for number, text in enumerate(texts, start=1):
            context, _, word = text.rpartition(" ")
            examples.append(Example(str(number), {"context": context, "word": f" {word}"}, text=text))
        return examples

    def requests(self, example: Example, reader: Reader) -> Sequence[Request]:
        """The word behind its passage, and the likeliest token that is no function word where those are barred.

        Raises DataError where there is no passage before the word.
        """
        if not example.content["context"].strip() or not example.content["word"].strip():
            raise DataError(f"{example.text!r} has no two words", expected="a passage")
        asked = reader.pair(example.content["context"], example.content["word"])
        if self.reading == "last-token":
            ids = asked.context + asked.continuation
            return [reader.cut(ids, len(ids) - 1)]
        if self.reading == "whole-word":
            return [asked]
        room = reader.context
        first = Generation(asked.context[-room:], 1, excluded=_function_tokens(reader.tokenizer))
        return [asked, first]

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Whether the word is the one that is predicted, and its log-probability."""
        word = answers[0]
        assert isinstance(word, Scored)
        record: dict[str, Any] = {"log_probability": word.total, "accuracy": float(all(word.is_greedy))}
        if self.reading == "whole-word.stop-words":
            first = answers[1]
            assert isinstance(first, Generated)
            asked = reader.pair(example.content["context"], example.content["word"])
            right = first.tokens == asked.continuation[:1] and all(word.is_greedy[1:])
            record["accuracy"] = float(right)
        return record

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Accuracy, and the perplexity of what was scored."""
        figures = [mean_figure("accuracy", [record["accuracy"] for record in records])]
        if len(self.metrics) > 1:
            figures.append(perplexity_figure([record["log_probability"] for record in records]))
        return figures


def perplexity_figure(log_probabilities: Sequence[float]) -> Figure:
    """e to the mean negative log-probability, its standard error carried through the exponential."""
    mean = mean_figure("perplexity", [-value for value in log_probabilities])
    value = math.exp(mean.value)
    return Figure("perplexity", value, None if mean.stderr is None else value * mean.stderr, mean.count)


def _read(path: Path, text: Text) -> list[str]:
    if text == "openai":
        return json_lines(path, lambda row: str(row["text"]), 'lines of {"text": …}')
    lines = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    return lines if text == "original" else [_detokenized(line) for line in lines]


def _detokenized(line: str) -> str:
    """The passage through the de-tokenizer, its answer a word of its own as in the original."""
    context, _, word = line.rpartition(" ")
    return f"{LAMBADA.detokenize(context)} {word}"


@lru_cache(maxsize=4)
def _function_tokens(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Every token that is a function word by itself, a space before it or not, in any case."""
    return tuple(
        token
        for token in range(tokenizer.vocabulary_size)
        if tokenizer.token_text(token).strip().lower() in FUNCTION_WORDS
    )


READINGS: tuple[Reading, ...] = ("last-token", "whole-word", "whole-word.stop-words")
TEXTS: tuple[Text, ...] = ("openai", "original", "original.detokenized")
TASKS = [Lambada(text, reading) for text in TEXTS for reading in READINGS]
