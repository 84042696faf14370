"""Make labelled data from a corpus and its split, in any language: predict the source of a passage.

The source is the package in `python-docs`, else the file. Passages do not overlap. Those of the training part are
examples for training, those of the held-out part for validation: with the fraction that the corpus was packed
with, a model pre-trained on its tokens has not seen them. Of a long text the passages with the lowest hash of
(seed, id, place) are used, to bound memory.

The folder, kind "labels", has `train.jsonl` and `validation.jsonl`: {"text", "label"}. Its configuration has the
`counts` of examples, the `classes`, and the accuracies of guessing: `chance` and, on the validation examples,
`majority`.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.corpus import Division, Document, Part, rank, split
from headwater.errors import DataError
from headwater.storage import SILENT, Progress, Stage, write_json_lines

LabelledRows = dict[Part, list[dict[str, str]]]

CLASSES = 8
# (minimum, maximum) examples of a class; the maximum is enough for a fine-tuning of some minutes.
CLASS_EXAMPLES: dict[Part, tuple[int, int]] = {"train": (60, 400), "validation": (8, 60)}
PASSAGE_CHARACTERS = 360
# How many characters before the exact place a cut may be at white space; scripts without spaces are cut anywhere.
_REACH = 40
# Candidates for classes; a corpus with more sources uses the first of them.
_CANDIDATES = 1000
# With fewer examples an accuracy is meaningless.
MINIMUM_EXAMPLES: dict[Part, int] = {"train": 32, "validation": 8}


@dataclass(frozen=True, slots=True, order=True)
class _Passage:
    rank: int
    text: str


def make_labels(
    corpus: Path, out: Path, validation: float = 0.05, *, seed: int = 0, progress: Progress = SILENT
) -> dict[str, Any]:
    """Write the labels folder `out` unless it exists; return its configuration.

    Keys: task, counts {train, validation}, classes, chance, majority. Raises DataError if the corpus has too few
    passages.
    """
    Division(validation)  # raises UsageError
    stage = Stage(
        out,
        kind="labels",
        config={"task": "source", "validation": validation},
        inputs={"corpus": corpus},
        seed=seed,
        measured=["counts", "classes", "chance", "majority"],
    )
    if stage.is_complete(progress):
        return stage.config
    with stage.write() as work:
        progress.start("labels")
        rows = source_rows(split(corpus, validation), seed)
        _check_counts(corpus, rows)
        for part, examples in rows.items():
            write_json_lines(work / f"{part}.jsonl", examples)
        labels = Counter(row["label"] for row in rows["validation"])
        classes = sorted({row["label"] for row in rows["train"]})
        counts = {part: len(examples) for part, examples in rows.items()}
        majority = max(labels.values()) / labels.total()
        stage.config |= {"counts": counts, "classes": classes, "chance": 1 / len(classes), "majority": majority}
        progress.finish(f"{counts['train']:,} examples for training, {counts['validation']:,} held out")
    return stage.config


def source_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"text", "label"} rows by package or file; none if fewer than two have enough passages."""
    by_source: dict[Part, dict[str, list[_Passage]]] = {"train": {}, "validation": {}}
    for part, document in parts:
        source = document.labels.get("package") or document.source
        for passage in _passages(document, seed):
            if source in by_source[part] or len(by_source[part]) < _CANDIDATES:
                _keep_lowest(by_source[part].setdefault(source, []), passage, CLASS_EXAMPLES[part][1])
    rows: LabelledRows = {"train": [], "validation": []}
    names = _choose_classes(by_source)
    if len(names) < 2:
        return rows
    seen: set[str] = set()
    for part, groups in by_source.items():
        most = 2 * min(len(groups[name]) for name in names)
        chosen = [(passage, name) for name in names for passage in groups[name][:most]]
        for passage, label in sorted(chosen, key=lambda pair: rank(seed, "order", str(pair[0].rank))):
            text = passage.text.strip()
            if text and text not in seen:
                seen.add(text)
                rows[part].append({"text": text, "label": label})
    return rows


def _passages(document: Document, seed: int) -> Iterator[_Passage]:
    """Yield the consecutive passages of a document."""
    text, start, index = document.text, 0, 0
    while start + PASSAGE_CHARACTERS <= len(text):
        end = _cut_before(text, start + PASSAGE_CHARACTERS)
        yield _Passage(rank(seed, document.id, str(index)), text[start:end])
        start, index = end, index + 1


def _cut_before(text: str, exact: int) -> int:
    """Return the last white space at most _REACH characters before `exact`, else `exact`."""
    for index in range(exact, exact - _REACH, -1):
        if text[index : index + 1].isspace():
            return index
    return exact


def _choose_classes(groups: Mapping[Part, Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return up to CLASSES names with the most examples, largest first, that have enough in both parts."""
    names = [
        name
        for name in groups["train"]
        if all(len(groups[part].get(name, ())) >= least for part, (least, _) in CLASS_EXAMPLES.items())
    ]
    return sorted(names, key=lambda name: (-len(groups["train"][name]), name))[:CLASSES]


def _keep_lowest(kept: list[_Passage], passage: _Passage, most: int) -> None:
    """Add a passage to `kept`, the `most` passages of lowest rank in ascending order, if it is one of them."""
    if len(kept) < most or passage < kept[-1]:
        insort(kept, passage)
        del kept[most:]


def _check_counts(corpus: Path, rows: LabelledRows) -> None:
    for part, least in MINIMUM_EXAMPLES.items():
        if len(rows[part]) < least:
            raise DataError(
                f"{corpus} gives {len(rows[part])} {part} examples of sources",
                expected=f"at least {least}",
                repair="Use more text, in two or more files",
            )
