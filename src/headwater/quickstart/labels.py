"""Make labelled data from a corpus and its split, in any language: `headwater corpus labels`.

`continuation`: choose, among four, the passage that follows. Passages form groups of four, from one document if it
has enough. Each is a question with the continuations of all four as answers, so that the answers alone reveal
nothing. `context + answers[label]` is a piece of the text.

`source`: predict the source of a passage: its package in `python-docs`, else its file.

Passages do not overlap. Those of the training part are examples for training, those of the held-out part for
validation: with the fraction that the corpus was packed with, a model pre-trained on its tokens has not seen them.
Of a long text the passages with the lowest hash of (seed, id, place) are used, to bound memory.

The folder, kind "labels", has `train.jsonl` and `validation.jsonl`. Classification: {"text", "label"}; multiple
choice: {"context", "question", "answers", "label"}, where the label is an index of answers. Its configuration
records the `format`, the `counts` of examples, the `classes`, and the accuracies of guessing: `chance` and, on the
validation examples, `majority`.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.corpus import Division, Document, Part, rank, split
from headwater.errors import DataError, UsageError, suggest
from headwater.storage import SILENT, Progress, Stage, write_json_lines

LabelledRow = dict[str, Any]
LabelledRows = dict[Part, list[LabelledRow]]

CLASSES = 8
CHOICES = 4
# (minimum, maximum) examples of a class; the maximum is enough for a fine-tuning of some minutes.
CLASS_EXAMPLES: dict[Part, tuple[int, int]] = {"train": (60, 400), "validation": (8, 60)}
CHOICE_EXAMPLES: dict[Part, int] = {"train": 4000, "validation": 500}
CONTEXT_CHARACTERS = 240
CONTINUATION_CHARACTERS = 120
PASSAGE_CHARACTERS = 360
# How many characters before the exact place a cut may be at white space; scripts without spaces are cut anywhere.
_REACH = 40
# Candidates for classes; a corpus with more sources uses the first of them.
_CANDIDATES = 1000
# With fewer examples an accuracy is meaningless.
MINIMUM_EXAMPLES: dict[Part, int] = {"train": 32, "validation": 8}


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    rank: int
    document: str
    context: str
    answer: str

    @property
    def text(self) -> str:
        return self.context + self.answer


def continuation_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"context", "question", "answers", "label"} rows, CHOICES answers each."""
    kept: dict[Part, list[_Piece]] = {"train": [], "validation": []}
    for part, document in parts:
        for piece in _pieces(document, seed):
            _keep(kept[part], piece, CHOICE_EXAMPLES[part])
    rows: LabelledRows = {"train": [], "validation": []}
    seen: set[str] = set()
    for part, lowest in kept.items():
        pieces = [piece for piece in lowest if piece.answer not in seen]
        pieces = list({piece.answer: piece for piece in reversed(pieces)}.values())[::-1]
        seen.update(piece.answer for piece in pieces)
        rows[part] = _continuations(pieces, seed)
    return rows


def source_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"text", "label"} rows by package or file; none if fewer than two have enough passages."""
    by_source: dict[Part, dict[str, list[_Piece]]] = {"train": {}, "validation": {}}
    for part, document in parts:
        source = document.labels.get("package") or document.source
        for piece in _pieces(document, seed):
            if source in by_source[part] or len(by_source[part]) < _CANDIDATES:
                _keep(by_source[part].setdefault(source, []), piece, CLASS_EXAMPLES[part][1])
    rows: LabelledRows = {"train": [], "validation": []}
    names = _choose_classes(by_source)
    if len(names) < 2:
        return rows
    seen: set[str] = set()
    for part, groups in by_source.items():
        most = 2 * min(len(groups[name]) for name in names)
        chosen = [(piece, name) for name in names for piece in groups[name][:most]]
        for piece, label in sorted(chosen, key=lambda pair: rank(seed, "order", str(pair[0].rank))):
            text = piece.text.strip()
            if text and text not in seen:
                seen.add(text)
                rows[part].append({"text": text, "label": label})
    return rows


def _pieces(document: Document, seed: int) -> Iterator[_Piece]:
    """Yield the consecutive passages of a document."""
    text, start, index = document.text, 0, 0
    while start + PASSAGE_CHARACTERS <= len(text):
        middle = _cut_before(text, start + CONTEXT_CHARACTERS)
        end = _cut_before(text, middle + CONTINUATION_CHARACTERS)
        yield _Piece(rank(seed, document.id, str(index)), document.id, text[start:middle], text[middle:end])
        start, index = end, index + 1


def _cut_before(text: str, exact: int) -> int:
    """Return the last white space at most _REACH characters before `exact`, else `exact`."""
    for index in range(exact, exact - _REACH, -1):
        if text[index : index + 1].isspace():
            return index
    return exact


def _continuations(pieces: list[_Piece], seed: int) -> list[LabelledRow]:
    documents: dict[str, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        documents[piece.document].append(piece)
    groups: list[list[_Piece]] = []
    rest: list[_Piece] = []
    for neighbours in documents.values():
        whole = len(neighbours) // CHOICES * CHOICES
        groups += [neighbours[i : i + CHOICES] for i in range(0, whole, CHOICES)]
        rest += neighbours[whole:]
    groups += [rest[i : i + CHOICES] for i in range(0, len(rest) - CHOICES + 1, CHOICES)]
    questions = [[(piece.context.lstrip(), piece.answer) for piece in group] for group in groups]
    return _choice_rows(questions, seed)


def _choice_rows(groups: list[list[tuple[str, str]]], seed: int) -> list[LabelledRow]:
    """Return a question for each (context, answer) of each group, with all answers of the group to choose from.

    Within a group the right answer has each place once; the order of questions depends on the seed.
    """
    rows: list[tuple[int, LabelledRow]] = []
    for group in groups:
        shift = rank(seed, "shift", group[0][1]) % len(group)
        order = sorted(answer for _, answer in group)
        order = order[shift:] + order[:shift]
        for number, (context, answer) in enumerate(sorted(group, key=lambda pair: rank(seed, *pair))):
            # The right answer moves to place `number`; the others keep their order.
            others = [other for other in order if other != answer]
            answers = [*others[:number], answer, *others[number:]]
            row = {"context": context, "question": "", "answers": answers, "label": number}
            rows.append((rank(seed, "question", context, answer), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _choose_classes(groups: Mapping[Part, Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return up to CLASSES names with the most examples, largest first, that have enough in both parts."""
    names = [
        name
        for name in groups["train"]
        if all(len(groups[part].get(name, ())) >= least for part, (least, _) in CLASS_EXAMPLES.items())
    ]
    return sorted(names, key=lambda name: (-len(groups["train"][name]), name))[:CLASSES]


def _keep(kept: list[_Piece], piece: _Piece, most: int) -> None:
    """Add a piece to `kept`, the `most` pieces of lowest rank in ascending order, if it is one of them."""
    if len(kept) < most or piece < kept[-1]:
        insort(kept, piece)
        del kept[most:]


# The tasks: what makes their rows, and whether these are choices.
TASKS: dict[str, tuple[Callable[[Iterable[tuple[Part, Document]], int], LabelledRows], bool]] = {
    "source": (source_rows, False),
    "continuation": (continuation_rows, True),
}


def make_labels(
    corpus: Path,
    task: str,
    out: Path,
    validation: float = 0.05,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Write the labels folder `out` for `task` unless it exists; return its configuration.

    Keys: task, format, counts {train, validation}, classes (empty for multiple choice), chance, majority.
    Raises UsageError for an unknown task, DataError if the corpus gives too few examples.
    """
    Division(validation)  # raises UsageError
    if task not in TASKS:
        raise UsageError(f"{task!r} is not a task", **suggest(task, TASKS))
    make, is_choice = TASKS[task]
    stage = Stage(
        out,
        kind="labels",
        config={"task": task, "format": "choice" if is_choice else "classification", "validation": validation},
        inputs={"corpus": corpus},
        seed=seed,
        measured=["counts", "classes", "chance", "majority"],
    )
    if stage.is_complete(progress):
        return stage.config
    with stage.write() as work:
        progress.start(f"labels: {task}")
        rows = make(split(corpus, validation), seed)
        _check_counts(corpus, task, rows)
        for part, examples in rows.items():
            write_json_lines(work / f"{part}.jsonl", examples)
        stage.config |= _measure(rows, is_choice)
        counts = stage.config["counts"]
        progress.finish(f"{counts['train']:,} examples for training, {counts['validation']:,} held out")
    return stage.config


def _measure(rows: LabelledRows, is_choice: bool) -> dict[str, Any]:
    labels = Counter(row["label"] for row in rows["validation"])
    classes = sorted({row["label"] for row in rows["train"]}) if not is_choice else []
    return {
        "counts": {part: len(examples) for part, examples in rows.items()},
        "classes": classes,
        "chance": 1 / (len(classes) or CHOICES),
        "majority": max(labels.values()) / labels.total(),
    }


def _check_counts(corpus: Path, task: str, rows: LabelledRows) -> None:
    for part, least in MINIMUM_EXAMPLES.items():
        if len(rows[part]) < least:
            several = ", in two or more files" if task == "source" else ""
            more = ", or hold more out with a larger --validation" if part == "validation" else ""
            raise DataError(
                f"{corpus} gives {len(rows[part])} {part} examples for the task {task!r}",
                expected=f"at least {least}",
                repair=f"Use more text{several}{more}",
            )
