"""`headwater predict` as a function: read a table, write one line a row, in constant memory."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice, tee
from pathlib import Path
from typing import Any

from headwater.device import choose_device
from headwater.errors import DataError, UsageError, counted
from headwater.finetuning.columns import Columns, find_columns, task_rows
from headwater.finetuning.fine_tuned import FineTuned, Prediction
from headwater.finetuning.rows import Raw, TaskName
from headwater.reading import open_table, table_columns
from headwater.storage import SILENT, OutputFile, Progress, to_json
from headwater.training import choose_precision

_FORMATS = {".jsonl": None, ".csv": ",", ".tsv": "\t"}


def predict_file(
    model: Path,
    file: Path,
    out: Path,
    *,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Label the rows of `file` and write `out` atomically.

    Each row keeps its columns, in order, followed by `prediction` and the probability of each class: one column a
    class in .csv and .tsv, `probabilities` in .jsonl. The probabilities of a choice, whose rows may have different
    numbers of answers, share one column, separated by spaces. A row without text gets an empty prediction. An
    added column gets an underscore if the file already has its name. `columns` names those of `file` that differ
    from the training file's.

    Returns {"out", "rows", "empty"} and, if the file has labels of a class or choice, {"labelled", "accuracy"}.
    Raises UsageError for an `out` that does not end in .jsonl, .csv or .tsv or is `file`, DataError for rows,
    FolderError for models, and for an `out` that was not predicted from the same rows, model and options.
    """
    if out.suffix.lower() not in _FORMATS:
        raise UsageError(f"--out {out} has an unknown extension", expected=", ".join(_FORMATS))
    if out.exists() and file.exists() and out.samefile(file):
        raise UsageError(f"--out {out} is the file to read", repair="Choose another --out")
    chosen_device = choose_device(device, training=False)
    fine_tuned = FineTuned.load(model, dtype=choose_precision("auto", chosen_device), device=chosen_device)
    available = table_columns(file, limit)
    chosen = find_columns(
        str(file),
        available,
        fine_tuned.task,
        Columns.build(columns or {}, source="--column"),
        first=open_table(file).columns,
        trained=fine_tuned.columns,
        need_label=False,
        option="--column {role}={column}",
        progress=progress,
    )
    settings = {"columns": dict(columns or {}), "limit": limit}
    output = OutputFile(out, kind="predictions", config=settings, inputs={"model": model, "rows": file})
    output.require_own()

    def read() -> Iterator[Raw]:
        rows = islice(open_table(file).rows, limit)
        return iter(fine_tuned.as_read(task_rows(rows, str(file), fine_tuned.task, chosen, keep=True)))

    table = _Table(out, fine_tuned.task, available, fine_tuned.labels.output_names)
    if table.delimiter == "\t":  # refuse a row before hours of work, not after
        for row in read():
            table.fields(row)
    rows, again = tee(read())
    empty: list[int] = []
    done = labelled = right = shortened = 0
    progress.start("Predicting", unit="rows")
    with output.write() as handle:
        handle.write(table.header())
        for prediction, row in zip(fine_tuned.predict(rows), again, strict=True):
            handle.write(table.line(row, prediction))
            done += 1
            shortened += prediction.cut > 0
            if prediction.label is None:
                empty.append(row.row)
            elif row.label is not None and fine_tuned.labels.target != "score":
                labelled += 1
                right += fine_tuned.labels.matches(row, prediction.label)
            progress.advance(done)
    progress.finish(counted(done, "row"))
    if shortened:
        progress.note(f"shortened {counted(shortened, 'row')} that did not fit the model's context")
    summary: dict[str, Any] = {"out": str(out), "rows": done, "empty": len(empty)}
    if empty:
        shown = ", ".join(f"{number:,}" for number in empty[:5]) + (", …" if len(empty) > 5 else "")
        progress.note(f"Rows without text, which get an empty prediction ({len(empty):,}): {shown}")
    if labelled:
        summary |= {"labelled": labelled, "accuracy": right / labelled}
    return summary


class _Table:
    """Lines of the output file: the columns of the input, then the predictions."""

    def __init__(self, out: Path, task: TaskName, columns: list[str], classes: list[str]) -> None:
        self.columns = columns
        self.delimiter = _FORMATS[out.suffix.lower()]
        self.together = task == "choice" or self.delimiter is None  # one field has all probabilities of a row
        shares = ["probabilities"] if self.together else [f"p({name})" for name in classes]
        self.prediction, *self.shares = (_free(name, columns) for name in ("prediction", *shares))

    def header(self) -> bytes:
        return b"" if self.delimiter is None else self._separated([*self.columns, self.prediction, *self.shares])

    def line(self, row: Raw, prediction: Prediction) -> bytes:
        """Return one row's line; its added fields are empty if it has no prediction."""
        label, probabilities = prediction.label, prediction.probabilities or None
        if self.delimiter is None:
            added = {self.prediction: label, self.shares[0]: probabilities}
            return to_json(_finite({**(row.columns or {}), **added}), default=str)
        if probabilities is None:
            shares: list[Any] = [""] * len(self.shares)
        elif self.together:
            shares = [" ".join(map(str, probabilities.values()))]
        else:
            shares = list(probabilities.values())
        return self._separated([*self.fields(row), "" if label is None else label, *shares])

    def fields(self, row: Raw) -> list[Any]:
        """Return the fields of the input; raise DataError if a .tsv cannot hold one."""
        fields = [_plain((row.columns or {}).get(column)) for column in self.columns]
        if self.delimiter == "\t" and any(mark in str(field) for field in fields for mark in "\t\n"):
            raise DataError(
                f"row {row.row:,} has a field with a tab or a line end, which .tsv cannot hold",
                repair="Choose an --out that ends in .csv or .jsonl",
            )
        return fields

    def _separated(self, fields: list[Any]) -> bytes:
        assert self.delimiter is not None
        buffer = io.StringIO()
        # csv quotes a field that contains a character of the line end; "\r\n" makes it quote a lone "\r" too.
        csv.writer(buffer, delimiter=self.delimiter, lineterminator="\r\n").writerow(fields)
        return (buffer.getvalue().removesuffix("\r\n") + "\n").encode()


def _free(name: str, columns: list[str]) -> str:
    while name in columns:
        name += "_"
    return name


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return json.dumps(_finite(value), ensure_ascii=False, default=str)
    return value


def _finite(value: Any) -> Any:
    """Return a value with None for each NaN or infinity in it, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
