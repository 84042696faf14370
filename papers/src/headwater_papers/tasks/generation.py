"""Generated text: answers, from a text or from memory, and translations (GPT-2 sections 3.5, 3.7, 3.8).

CoQA: document, the conversation so far as `Q:` and `A:` lines, a last `A:`; greedy, up to the end of the line.
Natural Questions: SHOTS pairs of question and answer, then the question; greedy, exact match; the most confident 1
% are those with the highest probability of the whole answer. WMT-14: SHOTS pairs `english sentence = french
sentence`, then `english sentence =`; greedy, the first generated sentence.

The paper gives neither the number nor the source of its pairs. Here they are the last rows of the set, which are
not scored.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation import (
    Answer,
    Example,
    Figure,
    Generated,
    GenerationRequest,
    Metric,
    RequestEncoder,
    Source,
    Task,
    numbered,
    read_json_rows,
    text_of,
    texts_of,
)
from headwater.reading import parse_json, read_text
from headwater_papers.tasks.agreement import Bleu, against_people, exact_match, normalise, word_f1

SHOTS = 5
_ANSWER_TOKENS = 32
_SENTENCE_TOKENS = 96
_RESAMPLES = 200
_SENTENCE_END = re.compile(r"""(?P<word>[^\s"'’«(]*?)(?P<mark>[.!?]+)(?:\s?[»"'”)])*(?=\s|$)""")
_INITIALS = re.compile(r"[A-ZÀ-Ý]|(?:[^\W\d_]+[.-])+[^\W\d_]")
# English and French words that are written with a full stop.
_SHORTENED = """
M MM Mme Mlle Me Mr Mrs Ms Dr Prof Gen Gov Sen Rep Sgt Lt Col Capt St Ste Jr Sr vs etc No Inc Ltd Corp Co
cf art av env p Jan Feb Mar Apr Aug Sept Oct Nov Dec Janv Févr Juil Déc
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())


class Conversations(Task):
    """CoQA: answers to questions on a text, after the earlier questions and answers."""

    benchmark = "coqa"
    protocol = "coqa.greedy"
    summary = "answers to questions on a text, greedy, F1 against people's answers, also of each domain"
    metrics = (Metric("f1"), Metric("exact match"))
    sources = (Source("dev", names=("coqa-dev-v1.0.json",), where="stanfordnlp.github.io/coqa"),)

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example a question."""
        examples = []
        for story in parse_json(read_text(files["dev"]))["data"]:
            history = ""
            more = list(story.get("additional_answers", {}).values())
            for turn, (question, answer) in enumerate(zip(story["questions"], story["answers"], strict=True)):
                history += f"\nQ: {text_of(question, 'input_text')}\nA:"
                people = [text_of(said, "input_text") for said in (answer, *(other[turn] for other in more))]
                content = {"story": story["story"].strip(), "history": history, "answers": people}
                content["domain"] = story.get("source", "")
                examples.append(Example(f"{story['id']} {turn + 1}", content, text=story["story"]))
                history += f" {people[0]}"
        return examples

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[GenerationRequest]:
        """Return the document, its end cut if it does not fit, and the conversation."""
        return _line_after(example.content["story"] + "\n", example.content["history"], _ANSWER_TOKENS, encoder)

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return F1 and exact match of the line."""
        text = _line(answers)
        people = example.content["answers"]
        scores = {"f1": word_f1, "exact match": exact_match}
        found = {name: against_people(score, text, people) for name, score in scores.items()}
        return {**found, "text": text, "domain": example.content["domain"]}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return the means over all questions, then the F1 of each domain: `f1, wikipedia`."""
        domains: dict[str, list[float]] = {}
        for record in records:
            domains.setdefault(record["domain"], []).append(record["f1"])
        named = [Figure.share(f"f1, {domain}", domains[domain]) for domain in sorted(domains) if domain]
        return super().summarise(records) + named


class NaturalQuestions(Task):
    """Answers from memory."""

    benchmark = "natural-questions"
    protocol = "natural-questions.exact-match"
    summary = "answers from memory after 5 examples, exact match, and that of the most confident 1 %"
    metrics = (Metric("exact match"), Metric("exact match, most confident 1 %"))
    sources = (
        Source(
            "dev",
            names=("NQ-open.dev.jsonl", "nq-dev.jsonl"),
            where="google-research-datasets/natural-questions, nq_open",
        ),
    )

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return all questions but the last SHOTS, which are the examples in each prompt."""
        pairs = read_json_rows(files["dev"], _question, "question and answer a line")
        shown = "".join(f"Q: {question}?\nA: {answers[0]}\n\n" for question, answers in pairs[-SHOTS:])
        return numbered(
            ({"prompt": f"{shown}Q: {question}?\nA:", "answers": answers}, question)
            for question, answers in pairs[:-SHOTS]
        )

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[GenerationRequest]:
        """Return the examples and the question."""
        return _line_after("", example.content["prompt"], _ANSWER_TOKENS, encoder)

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return exact match, and the probability of the whole line."""
        (answer,) = answers
        assert isinstance(answer, Generated)
        text = _line(answers)
        right = max(exact_match(text, one) for one in example.content["answers"])
        confidence = math.exp(math.fsum(answer.log_probabilities))
        return {"exact match": right, "confidence": confidence, "question": example.text, "text": text}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return the means over all and over the most confident 1 %."""
        most_confident = sorted(records, key=lambda record: -record["confidence"])[: max(1, len(records) // 100)]
        everything, best = (metric.name for metric in self.metrics)
        return [
            Figure.share(everything, [record["exact match"] for record in records]),
            Figure.share(best, [record["exact match"] for record in most_confident]),
        ]


class QuestionTypes(Task):
    """The paper's baseline, without a model: the most common answer to questions of the same type."""

    benchmark = "natural-questions"
    protocol = "natural-questions.question-type"
    summary = "the most common answer to other questions that begin with the same word, exact match, no model"
    metrics = (Metric("exact match"),)
    sources = NaturalQuestions.sources

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return each question with the most common answer to the other questions of its type."""
        pairs = read_json_rows(files["dev"], _question, "question and answer a line")
        types = [(question.split() or [""])[0].lower() for question, _ in pairs]
        counts: dict[str, Counter[str]] = {}
        for kind, (_, answers) in zip(types, pairs, strict=True):
            counts.setdefault(kind, Counter()).update([normalise(answers[0])])
        rows = []
        for kind, (question, answers) in zip(types, pairs, strict=True):
            others = counts[kind] - Counter([normalise(answers[0])])
            answer = others.most_common(1)[0][0] if others else ""
            rows.append(({"text": answer, "answers": answers}, question))
        return numbered(rows)

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[GenerationRequest]:
        """Return no requests."""
        return []

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return the exact match of the common answer."""
        text = example.content["text"]
        return {"exact match": max(exact_match(text, one) for one in example.content["answers"]), "text": text}


class Translation(Task):
    """WMT-14, newstest2014, between English and French."""

    benchmark = "wmt14"
    metrics = (Metric("bleu"),)
    sources = tuple(
        Source(
            language,
            names=(f"newstest2014.en-fr.{language}", f"newstest2014-fren-ref.{language}"),
            where="statmt.org/wmt14/translation-task.html, newstest2014",
        )
        for language in ("en", "fr")
    )

    def __init__(self, direction: Literal["en-fr", "fr-en"]) -> None:
        self.protocol = f"wmt14.{direction}"
        self.summary = f"translation {direction} after {SHOTS} pairs, greedy, BLEU of the first sentence"
        self._from, self._to = direction.split("-")

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return all pairs but the last SHOTS, which are the examples in each prompt."""
        source, target = (read_text(files[side]).rstrip("\n").split("\n") for side in (self._from, self._to))
        if len(source) != len(target) or len(source) <= SHOTS:
            raise DataError(
                f"{files[self._from]} has {len(source):,} lines and {files[self._to]} {len(target):,}",
                expected=f"the same number, above {SHOTS}",
            )
        pairs = list(zip(source, target, strict=True))
        shown = "".join(f"{ours} = {theirs}\n" for ours, theirs in pairs[-SHOTS:])
        return numbered(
            ({"prompt": f"{shown}{ours} =", "reference": theirs}, theirs) for ours, theirs in pairs[:-SHOTS]
        )

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[GenerationRequest]:
        """Return the pairs and the sentence."""
        return _line_after("", example.content["prompt"], _SENTENCE_TOKENS, encoder)

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return the first sentence and its reference."""
        return {"text": first_sentence(_line(answers)), "reference": example.content["reference"]}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return BLEU over all sentences, with its error by bootstrap."""
        import numpy as np

        texts, references = ([record[key] for record in records] for key in ("text", "reference"))
        random = np.random.default_rng(0)
        drawn = [
            random.integers(0, len(records), len(records)) for _ in range(_RESAMPLES if len(records) > 1 else 0)
        ]
        bleu = Bleu(texts, references)
        values = [bleu.score(some) for some in drawn]
        error = float(np.std(values)) if values else None
        return [Figure("bleu", bleu.score(), error, len(records))]


def _line_after(before: str, last: str, most: int, encoder: RequestEncoder) -> list[GenerationRequest]:
    """Return the request for the rest of the last line of a prompt, greedy, of at most so many tokens."""
    return [generation(encoder.encode(before), encoder.encode(last), most, encoder, stop=("\n",))]


def generation(
    before: Sequence[int], last: Sequence[int], more: int, encoder: RequestEncoder, **options: Any
) -> GenerationRequest:
    """Ask for `more` tokens after a prompt that leaves room for them.

    Where both parts do not fit, cut the end of `before`, then the start of `last`. Raises DataError if nothing
    would be left.
    """
    length = encoder.context + 1 - more
    if length < 1:
        raise DataError(f"{more} tokens of answer do not fit a context of {encoder.context}")
    end = tuple(last[-length:])
    prompt = (*before[: length - len(end)], *end)
    return GenerationRequest(prompt, more, is_cut=len(prompt) < len(before) + len(last), **options)


def _question(row: Mapping[str, Any]) -> tuple[str, list[str]]:
    answers = texts_of(row, "answer")
    if not answers:
        raise ValueError("the question has no answer")
    return text_of(row, "question"), answers


def first_sentence(text: str) -> str:
    """Return the text to the first full stop, question or exclamation mark that ends a sentence; else all of it.

    A mark before a lower-case letter or a comma does not end a sentence; neither does the full stop of an
    abbreviation (`M.`, `Jan.`), of an initial (`J.`) or of several (`U.S.`).
    """
    text = text.strip()
    for end in _SENTENCE_END.finditer(text):
        word, mark, following = end["word"], end["mark"], text[end.end() :].lstrip()[:1]
        abbreviated = mark == "." and (word in _ABBREVIATIONS or _INITIALS.fullmatch(word))
        if not (following.islower() or following in set(",;:»”)") or (abbreviated and following)):
            return text[: end.end()]
    return text


def _line(answers: Sequence[Answer]) -> str:
    (answer,) = answers
    assert isinstance(answer, Generated)
    return answer.text.partition("\n")[0].strip()


TASKS: list[Task] = [
    Conversations(),
    Translation("en-fr"),
    Translation("fr-en"),
    NaturalQuestions(),
    QuestionTypes(),
]
