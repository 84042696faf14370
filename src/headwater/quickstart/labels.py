"""Make labelled data from a corpus and its split: `headwater corpus labels`.

Two tasks, `source` and `continuation` (`passage_tasks`). Training examples come from the training part of the
split, validation examples from the held-out part. With the fraction that the corpus was packed with, a model
pre-trained on the packed tokens has not seen the validation texts.

The folder, kind "labels", has `train.jsonl` and `validation.jsonl`. Classification: {"text", "label"}; multiple
choice: {"context", "question", "answers", "label"}, where the label is an index of answers. Its configuration
records the `format`, the `counts` of examples, the `classes`, and the accuracies of guessing: `chance` and, on the
validation examples, `majority`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from headwater.corpus import Document, Part, check_fraction, split
from headwater.errors import DataError, UsageError, suggest
from headwater.quickstart.passage_tasks import CHOICES, LabelledRows, continuation_rows, source_rows
from headwater.storage import SILENT, Progress, Stage, write_json_lines

Format = Literal["classification", "choice"]
Maker = Callable[[Iterable[tuple[Part, Document]], int], LabelledRows]

TASKS: dict[str, tuple[Format, Maker]] = {
    "source": ("classification", source_rows),
    "continuation": ("choice", continuation_rows),
}
# With fewer examples an accuracy is meaningless.
MINIMUM_EXAMPLES: dict[Part, int] = {"train": 32, "validation": 8}


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
    check_fraction(validation)
    if task not in TASKS:
        raise UsageError(f"{task!r} is not a task", **suggest(task, TASKS))
    kind, make = TASKS[task]
    stage = Stage(
        out,
        kind="labels",
        config={"task": task, "format": kind, "validation": validation},
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
        stage.config |= _measure(kind, rows)
        counts = stage.config["counts"]
        progress.finish(f"{counts['train']:,} examples for training, {counts['validation']:,} held out")
    return stage.config


def _measure(kind: Format, rows: LabelledRows) -> dict[str, Any]:
    labels = Counter(row["label"] for row in rows["validation"])
    classes = sorted({row["label"] for row in rows["train"]}) if kind == "classification" else []
    return {
        "counts": {part: len(examples) for part, examples in rows.items()},
        "classes": classes,
        "chance": 1 / (len(classes) or CHOICES),
        "majority": max(labels.values()) / labels.total(),
    }


def _check_counts(corpus: Path, task: str, rows: LabelledRows) -> None:
    for part, least in MINIMUM_EXAMPLES.items():
        if len(rows[part]) < least:
            more = ", or hold more out with a larger --validation" if part == "validation" else ""
            raise DataError(
                f"{corpus} gives {len(rows[part])} {part} examples for the task {task!r}",
                expected=f"at least {least}",
                repair=f"Use more text{more}",
            )
