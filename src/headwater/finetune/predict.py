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
from headwater.progress import SILENT, Progress
from headwater.storage import atomic_write
from headwater.train.loop import Precision, choose_precision
from headwater.train.machine import use_all_cores
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

    Returns {"out", "rows"} and, where the file carries labels of a class or choice, {"labelled", "accuracy"}.
    Raises UsageError for an ending that is not .jsonl, .csv or .tsv, DataError for rows, FolderError for models.
    """
    if out.suffix.lower() not in _FORMATS:
        raise UsageError(f"--out {out} has no known ending", expected=", ".join(_FORMATS))
    use_all_cores()
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
                handle.write(_header(prediction, out))
            handle.write(_line(prediction, out))
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


def _header(prediction: Prediction, out: Path) -> bytes:
    delimiter = _FORMATS[out.suffix.lower()]
    if delimiter is None:
        return b""
    return _separated(["row", "label", *(f"p({name})" for name in prediction.probabilities)], delimiter)


def _line(prediction: Prediction, out: Path) -> bytes:
    delimiter = _FORMATS[out.suffix.lower()]
    if delimiter is None:
        entry = {
            "row": prediction.row,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }
        return (json.dumps(entry, ensure_ascii=False) + "\n").encode()
    return _separated([prediction.row, prediction.label, *prediction.probabilities.values()], delimiter)


def _separated(fields: list[Any], delimiter: str) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode()
