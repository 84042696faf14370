"""The Children's Book Test (Hill et al. 2016): twenty sentences, and a sentence without a word, with ten
candidates.

GPT-2 (Radford et al. 2019, section 3.2): the probability of each candidate together with the rest of the sentence,
given the context, on de-tokenized text; the validation part, since The Jungle Book of the test part is in WebText.
`.spaces` joins the sentences by spaces, as in a book; the others have one sentence a line. The beginning of a
context that does not fit is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.errors import DataError
from headwater.evaluation import (
    DETOKENIZERS,
    Choice,
    ContinuationRequest,
    Detokenizer,
    EvaluateConfig,
    Example,
    RequestEncoder,
    Source,
    numbered,
)
from headwater.reading import read_text
from headwater.storage import Progress

BLANK = "XXXXX"
_CANDIDATES = 10
_SENTENCES = 20


class ChildrensBooks(Choice):
    """The omitted word among ten candidates."""

    def __init__(self, kind: str, letters: str, detokenizer: Detokenizer | None, joined: str = "\n") -> None:
        form = "detokenized" if detokenizer else "tokens"
        form += ".spaces" if joined == " " else ""
        names = (f"cbtest_{letters}_valid_2000ex.txt",)
        omitted = kind.replace("-", " ")
        super().__init__(
            "cbt",
            f"cbt.{kind}.{form}",
            "total",
            self._stories,
            Source("validation", names=names, where="Facebook's CBTest.tgz, research.fb.com/projects/babi"),
            summary=f"an omitted word ({omitted}), with the rest of its sentence, {form} text",
            ask=candidates_in_place,
        )
        self._detokenizer, self._joined = detokenizer, joined

    def _stories(self, path: Path) -> list[Example]:
        """Return one example for each block of twenty numbered sentences and a question."""
        rows = []
        for context, query, answer, candidates in read_stories(path):
            filled = [self._written([*context, query.replace(BLANK, candidate)]) for candidate in candidates]
            before = self._written([*context, query.partition(BLANK)[0].rstrip()])
            label = candidates.index(answer)
            content = {"before": before, "filled": filled, "answers": candidates, "label": label}
            rows.append((content, " ".join([*context, query.replace(BLANK, answer)])))
        return numbered(rows)

    def details(
        self, files: Mapping[str, Path], examples: Sequence[Example], config: EvaluateConfig, progress: Progress
    ) -> dict[str, Any]:
        """Return the number of sentences that the de-tokenizer cannot invert."""
        if self._detokenizer is None:
            return {}
        lines = [sentence for context, *_ in read_stories(files["validation"]) for sentence in context]
        return self._detokenizer.count_exceptions(lines)

    def _written(self, sentences: Sequence[str]) -> str:
        if self._detokenizer is None:
            return self._joined.join(sentences)
        return self._joined.join(self._detokenizer.detokenize(sentence) for sentence in sentences)


def candidates_in_place(example: Example, encoder: RequestEncoder) -> list[ContinuationRequest]:
    """Return each candidate with the rest of its sentence, after the text before it."""
    borders = [(text, _shared(example.content["before"], text)) for text in example.content["filled"]]
    return [encoder.pair(text[:border], text[border:]) for text, border in borders]


def read_stories(path: Path) -> list[tuple[list[str], str, str, list[str]]]:
    """Return (twenty sentences, question with a blank, answer, ten candidates) of each block."""
    stories = []
    context: list[str] = []
    for number, line in enumerate([*read_text(path).split("\n"), ""], start=1):
        if not line.strip():
            if context:
                message = f"{path} line {number}: a story ends after {len(context)} sentences"
                raise DataError(message, expected=f"{_SENTENCES} sentences and a question")
            continue
        position, _, rest = line.partition(" ")
        if position != str(len(context) + 1):
            raise DataError(
                f"{path} line {number} begins with {position!r}", expected=f"sentence {len(context) + 1}"
            )
        if len(context) < _SENTENCES:
            context.append(rest.strip())
            continue
        fields = [field.strip() for field in rest.split("\t") if field.strip()]
        if len(fields) != 3 or BLANK not in fields[0]:
            message = f"{path} line {number} is not a question"
            raise DataError(message, expected="a question, an answer and candidates")
        query, answer, listed = fields
        candidates = listed.split("|")
        if len(candidates) != _CANDIDATES or answer not in candidates:
            raise DataError(f"{path} line {number} has the candidates {listed!r}", expected="ten with the answer")
        stories.append((context, query, answer, candidates))
        context = []
    return stories


def _shared(before: str, text: str) -> int:
    """Return the end of the last word that the text shares with the text before the blank."""
    pairs = enumerate(zip(before, text, strict=False))
    end = next((index for index, (left, right) in pairs if left != right), min(len(before), len(text)))
    while end > 0 and end < len(text) and not text[end].isspace() and not text[end - 1].isspace():
        end -= 1  # the de-tokenizer joined the candidate to the word before
    return end


TASKS = [
    ChildrensBooks(kind, letters, detokenizer, joined)
    for kind, letters in (("common-nouns", "CN"), ("named-entities", "NE"))
    for detokenizer, joined in ((None, "\n"), (DETOKENIZERS["cbt"], "\n"), (DETOKENIZERS["cbt"], " "))
]
