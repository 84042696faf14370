"""LAMBADA (Paperno et al. 2016): the last word of a passage, one protocol for each text and each way to score it.

Texts: `openai` is OpenAI's own file; `openai.suggested` is that file as OpenAI suggests to prepare it (straight
double quotes, white space stripped, a newline in front; openai/gpt-2 issue 131); `original` is the authors'
tokenised, lower-cased file; `original.detokenized` is that file through the de-tokenizer. How the answer is
scored:

`last-token`            only its last token, given all text and tokens before it;
`whole-word`            all its tokens, greedy (`lambada_openai` in lm-evaluation-harness);
`whole-word.stop-words` the most probable word that is not a function word: GPT-2's approximation of "must be able
                        to end the sentence" (Radford et al. 2019, section 3.3). The paper says so of the
                        largest model's 63.24; that all accuracies of table 3 have the filter is inferred;
`whole-word.context-words` the most probable of the words of the context, as earlier systems were restricted to
                        them (Hoang et al. 2018); an answer that is not there is wrong.

The stop-word filter works on whole words. It takes the most probable first token and continues it greedily to the
end of the word. If that word is a function word, it excludes that first token and takes the next most probable
one. A capitalized function word is a name ("Will"), except "I".

Perplexity is e to the mean negative log-probability of what is scored, one answer a passage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation.data_files import Source
from headwater.evaluation.detokenize import LAMBADA
from headwater.evaluation.figures import Figure
from headwater.evaluation.function_words import FUNCTION_WORDS
from headwater.evaluation.json_lines import json_lines, text_of
from headwater.evaluation.protocols import (
    Answer,
    Example,
    Generated,
    GenerationRequest,
    Metric,
    Scored,
    Task,
    TaskRequest,
)
from headwater.evaluation.reader import Reader
from headwater.reading import read_text

Text = Literal["openai", "openai.suggested", "original", "original.detokenized"]
Reading = Literal["last-token", "whole-word", "whole-word.stop-words", "whole-word.context-words"]

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

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|'[^\W_]+")
_WITHOUT_PERPLEXITY = ("whole-word.stop-words", "whole-word.context-words")
_LONGEST_WORD = 8  # tokens that are generated after the first to find the end of a word


def first_word(text: str) -> str:
    """Return the word that a generated text begins with, or the empty string for punctuation."""
    match = _WORD.match(text.strip().replace("’", "'"))
    return match[0] if match else ""


# Of each reading: what is scored, what the paper states, and what it leaves open.
_TEXTS_OF: Mapping[Reading, tuple[str, list[str], str]] = {
    "last-token": (
        "the last token of the last word",
        ["the last word"],
        "that one token is scored: the paper predicts the word",
    ),
    "whole-word": (
        "all tokens of the last word, given the passage before it; accuracy: all are greedy",
        ["the last word"],
        "that the perplexity is a word's",
    ),
    "whole-word.stop-words": (
        "whether the most probable word that is not a function word is the last word",
        ["the last word", "a stop-word filter"],
        "the list of function words, that it works on whole words, and that all sizes of table 3 have it",
    ),
    "whole-word.context-words": (
        "whether the last word is the most probable word of those in the passage before it",
        ["the restriction to the words of the context, which the paper calls harmful"],
        "how words are compared: as they are written, with letters and digits and apostrophes inside",
    ),
}
_PREPARED: Mapping[Text, str] = {
    "openai": "",
    "openai.suggested": "the preparation, from openai/gpt-2 issue 131",
    "original": "the authors' own text",
    "original.detokenized": "the de-tokenizer's rules",
}


class Lambada(Task):
    """The last word of each passage."""

    benchmark = "lambada"

    def __init__(self, text: Text, reading: Reading) -> None:
        self.text, self.reading = text, reading
        self.protocol = f"lambada.{text}.{reading}"
        self.summary = f"last word of a passage ({text} text), {reading.replace('.', ', ')}"
        self.scored, stated, open_choice = _TEXTS_OF[reading]
        self.from_paper = "; ".join([*stated, "OpenAI's file"] if text.startswith("openai") else stated)
        self.inferred = "; ".join(filter(None, (open_choice, _PREPARED[text])))
        self.sources = (_OPENAI if text.startswith("openai") else _ORIGINAL,)
        accuracy, perplexity = Metric("accuracy"), Metric("perplexity", higher_is_better=False)
        self.metrics = (accuracy,) if reading in _WITHOUT_PERPLEXITY else (accuracy, perplexity)

    def read(self, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one passage a line."""
        texts = _read(files["test"], self.text)
        examples = []
        for number, text in enumerate(texts, start=1):
            context, _, word = text.rpartition(" ")
            examples.append(Example(str(number), {"context": context, "word": f" {word}"}, text=text))
        return examples

    def requests(self, example: Example, reader: Reader) -> Sequence[TaskRequest]:
        """Ask for the word after its passage and, with the stop-word filter, for the most probable first token.

        Raises DataError if there is no passage before the word.
        """
        if not example.content["context"].strip() or not example.content["word"].strip():
            raise DataError(f"{example.text!r} does not have two words", expected="a passage")
        asked = reader.pair(example.content["context"], example.content["word"])
        if self.reading == "last-token":
            ids = asked.context + asked.continuation
            return [reader.cut(ids, len(ids) - 1)]
        if self.reading == "whole-word":
            return [asked]
        if self.reading == "whole-word.context-words":
            words = context_words(example)
            if not words:
                raise DataError(f"{example.text!r} has no word before the last one", expected="a passage")
            return [reader.pair(example.content["context"], f" {word}") for word in words]
        return [asked, GenerationRequest(asked.context[-reader.context :], 1)]

    def further(self, example: Example, answers: Sequence[Answer], reader: Reader) -> Sequence[TaskRequest]:
        """Ask for the rest of the word and, after a function word, for the next most probable first token.

        The generated answers alternate: a first token, the rest of its word, the next first token, and so on.
        """
        generated = [answer for answer in answers if isinstance(answer, Generated)]
        if not generated:
            return []
        firsts = [answer.tokens[0] for answer in generated[::2]]
        asked = reader.pair(example.content["context"], example.content["word"])
        prompt = asked.context[-reader.context :]
        if len(generated) % 2:
            if not FUNCTION_WORDS.may_begin(reader.tokenizer.token_text(firsts[-1])):
                return []
            fits = reader.context + 1 - _LONGEST_WORD
            return [GenerationRequest((*prompt, firsts[-1])[-fits:], _LONGEST_WORD, stop=(" ", "\n"))]
        word = first_word(reader.tokenizer.token_text(firsts[-1]) + generated[-1].text)
        return [GenerationRequest(prompt, 1, excluded=tuple(firsts))] if word in FUNCTION_WORDS else []

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Return whether the predicted word is the answer, and the answer's log-probability."""
        if self.reading == "whole-word.context-words":
            words = context_words(example)
            totals = [answer.total for answer in answers if isinstance(answer, Scored)]
            text, target = words[totals.index(max(totals))], example.content["word"].strip()
            return {"accuracy": float(text == target), "text": text, "in context": target in words}
        word = answers[0]
        assert isinstance(word, Scored)
        record: dict[str, Any] = {"log_probability": word.total, "accuracy": float(all(word.is_greedy))}
        if self.reading == "whole-word.stop-words":
            asked = reader.pair(example.content["context"], example.content["word"])
            firsts = [answer for answer in answers if isinstance(answer, Generated)][::2]
            chosen = firsts[-1]  # the others were rejected
            record["accuracy"] = float(chosen.tokens == asked.continuation[:1] and all(word.is_greedy[1:]))
        return record

    def details(self, files: Mapping[str, Path], examples: Sequence[Example]) -> dict[str, Any]:
        """Return the number of passages that the de-tokenizer cannot invert."""
        if self.text != "original.detokenized":
            return {}
        contexts = [line.rpartition(" ")[0] for line in _read(files["test"], "original")]
        return LAMBADA.count_exceptions(contexts)

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return accuracy, and the perplexity of what was scored."""
        figures = [Figure.share("accuracy", [record["accuracy"] for record in records])]
        if len(self.metrics) > 1:
            figures.append(Figure.perplexity([record["log_probability"] for record in records]))
        return figures


def context_words(example: Example) -> list[str]:
    """Return the different words before the last one, in their order."""
    return list(dict.fromkeys(_WORD.findall(example.content["context"])))


def _read(path: Path, text: Text) -> list[str]:
    if text.startswith("openai"):
        passages = json_lines(path, lambda row: text_of(row, "text"), 'lines of {"text": …}')
        return passages if text == "openai" else [_suggested(passage) for passage in passages]
    lines = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    return lines if text == "original" else [_detokenized(line) for line in lines]


def _detokenized(line: str) -> str:
    """De-tokenize a passage, with the answer as a separate word as in the original."""
    context, _, word = line.rpartition(" ")
    return f"{LAMBADA.detokenize(context)} {word}"


def _suggested(passage: str) -> str:
    """Prepare a passage as OpenAI suggests."""
    return "\n" + passage.replace("“", '"').replace("”", '"').strip()


READINGS: tuple[Reading, ...] = ("last-token", "whole-word", "whole-word.stop-words")
TEXTS: tuple[Text, ...] = ("openai", "openai.suggested", "original", "original.detokenized")
TASKS = [Lambada(text, reading) for text in TEXTS for reading in READINGS]
TASKS.append(Lambada("openai", "whole-word.context-words"))
