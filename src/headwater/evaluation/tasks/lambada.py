"""LAMBADA (Paperno et al. 2016): the last word of a passage, one protocol for each text and each way to score it.

Texts: `openai` is OpenAI's own file; `original` is the authors' tokenised, lower-cased file;
`original.detokenized` is that file through the de-tokenizer. How the answer is scored:

`last-token`            only its last token, given all text and tokens before it;
`whole-word`            all its tokens, greedy (`lambada_openai` in lm-evaluation-harness);
`whole-word.stop-words` the most probable word that is not a function word: GPT-2's approximation of "must be able
                        to end the sentence" (Radford et al. 2019, section 3.3). The paper says so of the
                        largest model's 63.24; that all accuracies of table 3 have the filter is inferred.

The stop-word filter works on whole words. It takes the most probable first token and continues it greedily to the
end of the word. If that word is a function word, it excludes that first token and takes the next most probable
one. A capitalized function word is a name ("Will"), except "I".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.data_files import Source, read_json_rows, text_of
from headwater.evaluation.detokenize import DETOKENIZERS
from headwater.evaluation.last_word import LastWord, word_after_passage
from headwater.evaluation.protocols import (
    Answer,
    Example,
    Generated,
    GenerationRequest,
    Scored,
    TaskRequest,
)
from headwater.evaluation.request_encoder import RequestEncoder
from headwater.reading import read_text
from headwater.storage import Progress

Text = Literal["openai", "original", "original.detokenized"]
Scoring = Literal["last-token", "whole-word", "whole-word.stop-words"]

# Function words of English: pronouns, determiners, prepositions, conjunctions, auxiliaries, and similar particles
# and adverbs. The papers give no list; this one is written from the word classes.
_WORDS = """
I i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
she her hers herself it its itself they them their theirs themselves one who whom whose which what
that this these those a an the some any no each every either neither both all few many more most
other another such own same of in on at by to from with without into onto upon about above below
over under after before during between among through against until till since for off out up down
near beside behind across along around and or but nor so yet if because as than while when where why
how whether though although unless am is are was were be been being have has had having do does did
doing will would shall should can could may might must ought not never only just very too also then
there here again once further now even still cannot
"""
_ALL = frozenset(_WORDS.split())
_ENDINGS = ("n't", "'s", "'t", "'d", "'ll", "'m", "'re", "'ve")
_FORMS = _ALL | {word + ending for word in ("", *_ALL) for ending in _ENDINGS}
_FORMS |= {"won't", "can't", "shan't", "ain't"}
_BEGINNINGS = {form[:end] for form in _FORMS for end in range(len(form) + 1)}


class FunctionWords:
    """The set of function words: `word in FUNCTION_WORDS`, also with a contraction ("don't", "she'll")."""

    def __contains__(self, word: str) -> bool:
        return word.replace("’", "'") in _FORMS

    def may_begin(self, text: str) -> bool:
        """Return whether a word that begins with this text of a token can be a function word."""
        return text.strip().replace("’", "'") in _BEGINNINGS


# The words that LAMBADA's stop-word filter excludes.
FUNCTION_WORDS = FunctionWords()

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

_DETOKENIZER = DETOKENIZERS["lambada"]
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|'[^\W_]+")
_LONGEST_WORD = 8  # tokens that are generated after the first to find the end of a word


def first_word(text: str) -> str:
    """Return the word that a generated text begins with, or the empty string for punctuation."""
    match = _WORD.match(text.strip().replace("’", "'"))
    return match[0] if match else ""


class Lambada(LastWord):
    """The last word of each passage."""

    def __init__(self, text: Text, scoring: Scoring) -> None:
        super().__init__(
            "lambada",
            f"lambada.{text}.{scoring}",
            partial(_read, text),
            _OPENAI if text == "openai" else _ORIGINAL,
            summary=f"last word of a passage ({text} text), {scoring.replace('.', ', ')}",
        )
        self.text = text
        self.filters = scoring == "whole-word.stop-words"
        if self.filters:
            self.metrics = self.metrics[:1]

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[TaskRequest]:
        """Ask for the word after its passage and, with the stop-word filter, for the most probable first token."""
        if not self.filters:
            return super().requests(example, encoder)
        request = word_after_passage(example, encoder)
        return [request, GenerationRequest(request.context[-encoder.context :], 1)]

    def further(
        self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder
    ) -> Sequence[TaskRequest]:
        """Ask for the rest of the word and, after a function word, for the next most probable first token.

        The generated answers alternate: a first token, the rest of its word, the next first token, and so on.
        """
        generated = [answer for answer in answers if isinstance(answer, Generated)]
        if not generated:
            return []
        firsts = [answer.tokens[0] for answer in generated[::2]]
        prompt = word_after_passage(example, encoder).context[-encoder.context :]
        if len(generated) % 2:
            if not FUNCTION_WORDS.may_begin(encoder.tokenizer.token_text(firsts[-1])):
                return []
            fits = encoder.context + 1 - _LONGEST_WORD
            return [GenerationRequest((*prompt, firsts[-1])[-fits:], _LONGEST_WORD, stop=(" ", "\n"))]
        word = first_word(encoder.tokenizer.token_text(firsts[-1]) + generated[-1].text)
        return [GenerationRequest(prompt, 1, excluded=tuple(firsts))] if word in FUNCTION_WORDS else []

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return whether the predicted word is the answer, and the answer's log-probability."""
        record = super().score(example, answers, encoder)
        if self.filters:
            word, *generated = answers
            assert isinstance(word, Scored)
            first = word_after_passage(example, encoder).continuation[:1]
            # The last first token is the chosen one: the others were rejected.
            chosen = [answer for answer in generated if isinstance(answer, Generated)][::2][-1]
            record["accuracy"] = float(chosen.tokens == first and all(word.is_greedy[1:]))
        return record

    def details(
        self, files: Mapping[str, Path], examples: Sequence[Example], config: EvaluateConfig, progress: Progress
    ) -> dict[str, Any]:
        """Return the number of passages that the de-tokenizer cannot invert."""
        if self.text != "original.detokenized":
            return {}
        contexts = [line.rpartition(" ")[0] for line in _read("original", files["test"])]
        return _DETOKENIZER.count_exceptions(contexts)


def _read(text: Text, path: Path) -> list[str]:
    if text == "openai":
        return read_json_rows(path, lambda row: text_of(row, "text"), 'lines of {"text": …}')
    lines = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    return lines if text == "original" else [_detokenized(line) for line in lines]


def _detokenized(line: str) -> str:
    """De-tokenize a passage, with the answer as a separate word as in the original."""
    context, _, word = line.rpartition(" ")
    return f"{_DETOKENIZER.detokenize(context)} {word}"


TASKS = [Lambada(text, scoring) for text in get_args(Text) for scoring in get_args(Scoring)]
