"""Make labelled data from a corpus and its split, in any language: predict the source of a passage.

The source is the package in `python-docs`, else the file. Passages do not overlap. Those of the training part are
examples for training, those of the held-out part for validation: with the fraction that the corpus was packed
with, a model pre-trained on its tokens has not seen them. Of a long text the passages with the lowest hash of
(seed, id, place) are used, to bound memory.

The folder, kind "labels", has `train.jsonl` and `validation.jsonl`: {"text", "label"}. Its configuration has the
`counts` of examples and the `classes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwater.corpus import Division, Document, Part, rank, split
from headwater.errors import DataError
from headwater.storage import SILENT, Progress, Stage, write_json_lines

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


def make_labels(
    corpus: Path, out: Path, validation: float = 0.05, *, seed: int = 0, progress: Progress = SILENT
) -> dict[str, Any]:
    """Write the labels folder `out` unless it exists; return its configuration.

    Keys: task, counts {train, validation}, classes. Raises DataError if the corpus has too few passages.
    """
    Division(validation)  # raises UsageError
    config = {"task": "source", "validation": validation, "seed": seed}
    measured = ["counts", "classes"]
    stage = Stage(out, kind="labels", config=config, inputs={"corpus": corpus}, measured=measured)
    if stage.is_complete(progress):
        return stage.config
    with stage.write() as work:
        progress.start("labels")
        rows = source_rows(split(corpus, validation), seed)
        for part, least in MINIMUM_EXAMPLES.items():
            if len(rows[part]) < least:
                raise DataError(
                    f"{corpus} gives {len(rows[part])} {part} examples of sources",
                    expected=f"at least {least}",
                    repair="Use more text, in two or more files",
                )
            write_json_lines(work / f"{part}.jsonl", rows[part])
        counts = {part: len(examples) for part, examples in rows.items()}
        stage.config |= {"counts": counts, "classes": sorted({row["label"] for row in rows["train"]})}
        progress.finish(f"{counts['train']:,} examples for training, {counts['validation']:,} held out")
    return stage.config


def source_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> dict[Part, list[dict[str, str]]]:
    """Return {"text", "label"} rows by package or file; none if fewer than two have enough passages.

    The classes are the sources with the most passages for training.
    """
    passages: dict[Part, dict[str, list[tuple[int, str]]]] = {"train": {}, "validation": {}}
    for part, document in parts:
        groups, source = passages[part], document.labels.get("package") or document.source
        if (source in groups or len(groups) < _CANDIDATES) and (new := list(_passages(document, seed))):
            groups[source] = sorted(groups.get(source, []) + new)[: CLASS_EXAMPLES[part][1]]
    names = [
        name
        for name in passages["train"]
        if all(len(passages[part].get(name, ())) >= least for part, (least, _) in CLASS_EXAMPLES.items())
    ]
    names = sorted(names, key=lambda name: (-len(passages["train"][name]), name))[:CLASSES]
    rows: dict[Part, list[dict[str, str]]] = {"train": [], "validation": []}
    if len(names) < 2:
        return rows
    seen: set[str] = set()
    for part, groups in passages.items():
        most = 2 * min(len(groups[name]) for name in names)
        chosen = [(passage, name) for name in names for passage in groups[name][:most]]
        for (_, passage), label in sorted(chosen, key=lambda pair: rank(seed, "order", str(pair[0][0]))):
            text = passage.strip()
            if text and text not in seen:
                seen.add(text)
                rows[part].append({"text": text, "label": label})
    return rows


def _passages(document: Document, seed: int) -> Iterator[tuple[int, str]]:
    """Yield the consecutive passages of a document with their ranks, cut at white space if there is some."""
    text, start, index = document.text, 0, 0
    while (end := start + PASSAGE_CHARACTERS) <= len(text):
        end = next((cut for cut in range(end, end - _REACH, -1) if text[cut : cut + 1].isspace()), end)
        yield rank(seed, document.id, str(index)), text[start:end]
        start, index = end, index + 1
