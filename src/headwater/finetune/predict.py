"""`headwater predict` as a function: a table in, one line a row out, streamed in constant memory."""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.finetune.examples import Columns, Raw, read_rows, says
from headwater.finetune.fine_tuned import FineTuned, Prediction
from headwater.finetune.inputs import Task
from headwater.progress import SILENT, Progress
from headwater.storage import atomic_write
from headwater.train.loop import Precision, choose_precision
from headwater.train.parallel import choose_device
from headwater.wording import counted

_FORMATS = {".jsonl": None, ".csv": ",", ".tsv": "\t"}


def predict_file(
    model: Path,
    file: Path,
    out: Path,
    *,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    precision: Precision = "auto",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Label the rows of `file` and write `out`: row, label, probabilities; the file appears when it is whole.

    `columns` names those that are called otherwise than in the training file.

    In .csv and .tsv a class has a column of its own; the answers of a choice, of which a row may have more than
    another, share one, with spaces between.

    Returns {"out", "rows"} and, where the file carries labels of a class or choice, {"labelled", "accuracy"}.
    Raises UsageError for an `out` that does not end in .jsonl, .csv or .tsv or is `file`, DataError for rows,
    FolderError for models.
    """
    if out.suffix.lower() not in _FORMATS:
        raise UsageError(f"--out {out} has no known ending", expected=", ".join(_FORMATS))
    if out.exists() and file.exists() and out.samefile(file):
        raise UsageError(f"--out {out} is the file to read", repair="Choose another --out")
    device = choose_device("auto")
    fine_tuned = FineTuned.load(model, dtype=choose_precision(precision, device), device=device)
    named = Columns.build(fine_tuned.columns.to_dict(), columns or {}, source="--column")
    pending: deque[Raw] = deque()

    def remembered(rows: Iterator[Raw]) -> Iterator[Raw]:
        for row in rows:
            pending.append(row)
            yield row

    rows = islice(read_rows(file, fine_tuned.task, named, need_label=False), limit)
    done = labelled = right = 0
    progress.start("Predicting", unit="rows")
    with atomic_write(out) as handle:
        for prediction in fine_tuned.predict(remembered(rows)):
            if done == 0:
                handle.write(_header(prediction, fine_tuned.task, out))
            handle.write(_line(prediction, fine_tuned.task, out))
            done += 1
            row = pending.popleft()
            if row.label is not None and fine_tuned.labels.target != "score":
                labelled += 1
                right += says(row, prediction.label, fine_tuned.labels)
            progress.advance(done)
    progress.finish(counted(done, "row"))
    summary: dict[str, Any] = {"out": str(out), "rows": done}
    if labelled:
        summary |= {"labelled": labelled, "accuracy": right / labelled}
    return summary


def _header(prediction: Prediction, task: Task, out: Path) -> bytes:
    delimiter = _FORMATS[out.suffix.lower()]
    if delimiter is None:
        return b""
    shares = ["probabilities"] if task == "choice" else [f"p({name})" for name in prediction.probabilities]
    return _separated(["row", "label", *shares], delimiter)


def _line(prediction: Prediction, task: Task, out: Path) -> bytes:
    delimiter = _FORMATS[out.suffix.lower()]
    if delimiter is None:
        entry = {
            "row": prediction.row,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }
        return (json.dumps(entry, ensure_ascii=False) + "\n").encode()
    shares = list(prediction.probabilities.values())
    together = [" ".join(map(str, shares))] if task == "choice" else shares
    return _separated([prediction.row, prediction.label, *together], delimiter)


def _separated(fields: list[Any], delimiter: str) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode()
