"""The Children's Book Test (Hill et al. 2016): a word left out of a sentence, ten candidates, twenty sentences.

GPT-2 (Radford et al. 2019, section 3.2): the probability of each candidate together with the rest of the
sentence, given the context; the text de-tokenized; the validation part, since The Jungle Book of the test part
is in WebText. `.spaces` joins the sentences by spaces, as in a book; the others have one sentence a line. A
context that does not fit loses its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.datasets.places import Place, Source
from headwater.errors import DataError
from headwater.evaluate.detokenize import CBT, UNDONE, Detokenizer
from headwater.evaluate.protocols import Answer, Example, Metric, Scored, Task, choose_largest
from headwater.evaluate.reader import ContinuationRequest, Reader
from headwater.storage.files import read_text
from headwater.storage.progress import SILENT, Progress

BLANK = "XXXXX"
_CANDIDATES = 10
_SENTENCES = 20


class ChildrensBooks(Task):
    """The word that was left out."""

    metrics = (Metric("accuracy", chance=1 / _CANDIDATES),)
    benchmark = "cbt"

    def __init__(self, kind: str, letters: str, detokenizer: Detokenizer | None, joined: str = "\n") -> None:
        reading = "detokenized" if detokenizer else "tokens"
        reading += ".spaces" if joined == " " else ""
        self.protocol = f"cbt.{kind}.{reading}"
        self.summary = (
            f"a left-out word ({kind.replace('-', ' ')}), by it and the rest of its sentence, {reading} text"
        )
        self.scored = (
            "each candidate and the rest of its sentence, given all before; the largest probability is chosen"
        )
        self.from_paper = "what is scored; the validation part" + ("; de-tokenized text" if detokenizer else "")
        rules = "the de-tokenizer's rules" if detokenizer else "the text as it is"
        self.inferred = f"{rules}; sentences joined by {'spaces' if joined == ' ' else 'line breaks'}"
        self._detokenizer, self._joined = detokenizer, joined
        names = (f"cbtest_{letters}_valid_2000ex.txt",)
        self.sources = (
            Source("validation", names=names, where="Facebook's CBTest.tgz, research.fb.com/projects/babi"),
        )

    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """Blocks of twenty numbered sentences and a question."""
        examples = []
        for number, (context, query, answer, candidates) in enumerate(read_stories(places["validation"]), start=1):
            filled = [self._written([*context, query.replace(BLANK, candidate)]) for candidate in candidates]
            before = self._written([*context, query.partition(BLANK)[0].rstrip()])
            content = {"before": before, "filled": filled, "label": candidates.index(answer)}
            examples.append(Example(str(number), content, text=" ".join([*context, query.replace(BLANK, answer)])))
        return examples

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Each candidate with the rest of its sentence behind all that comes before."""
        asked = []
        for text in example.content["filled"]:
            border = _shared(example.content["before"], text)
            asked.append(reader.pair(text[:border], text[border:]))
        return asked

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Whether the likeliest candidate is the right one."""
        values = [answer.total for answer in answers if isinstance(answer, Scored)]
        return choose_largest(values, example.content["label"])

    def beside(
        self, places: Mapping[str, Place], examples: Sequence[Example], progress: Progress = SILENT
    ) -> dict[str, Any]:
        """Return how many sentences the de-tokenizer cannot undo."""
        if self._detokenizer is None:
            return {}
        lines = [sentence for context, *_ in read_stories(places["validation"]) for sentence in context]
        return {UNDONE: len(self._detokenizer.exceptions(lines)), "lines": len(lines)}

    def _written(self, sentences: Sequence[str]) -> str:
        if self._detokenizer is None:
            return self._joined.join(sentences)
        return self._joined.join(self._detokenizer.detokenize(sentence) for sentence in sentences)


def read_stories(path: Path) -> list[tuple[list[str], str, str, list[str]]]:
    """(twenty sentences, question with a blank, answer, ten candidates) of each block of the official file."""
    found = []
    context: list[str] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            context = []
            continue
        place, _, rest = line.partition(" ")
        if place != str(len(context) + 1):
            raise DataError(f"{path} line {number} begins with {place!r}", expected=f"sentence {len(context) + 1}")
        if len(context) < _SENTENCES:
            context.append(rest.strip())
            continue
        fields = [field.strip() for field in rest.split("\t") if field.strip()]
        if len(fields) != 3 or BLANK not in fields[0]:
            raise DataError(
                f"{path} line {number} is no question", expected="a question, an answer and candidates"
            )
        query, answer, listed = fields
        candidates = listed.split("|")
        if len(candidates) != _CANDIDATES or answer not in candidates:
            raise DataError(f"{path} line {number} has the candidates {listed!r}", expected="ten with the answer")
        found.append((context, query, answer, candidates))
    if context and len(context) < _SENTENCES:
        raise DataError(f"{path} ends after {len(context)} sentences of a story", expected="a complete file")
    return found


def _shared(before: str, text: str) -> int:
    """Where the text begins to differ from what stands before the blank, at the end of a word."""
    limit = min(len(before), len(text))
    end = next((i for i in range(limit) if before[i] != text[i]), limit)
    while end > 0 and end < len(text) and not text[end].isspace() and not text[end - 1].isspace():
        end -= 1  # the de-tokenizer glued the candidate to what is before it
    return end


TASKS = [
    ChildrensBooks(kind, letters, detokenizer, joined)
    for kind, letters in (("common-nouns", "CN"), ("named-entities", "NE"))
    for detokenizer, joined in ((None, "\n"), (CBT, "\n"), (CBT, " "))
]
