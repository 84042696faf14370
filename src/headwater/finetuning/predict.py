"""`headwater predict` as a function: read a table, write its rows with their predictions, in constant memory."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.device import choose_device
from headwater.display import counted
from headwater.errors import UsageError
from headwater.finetuning.rows.labels import Labels, listed, number_of
from headwater.finetuning.rows.read import Columns, Unread, read_table
from headwater.finetuning.rows.row import Raw, class_name, label_set
from headwater.reading import text_encoding
from headwater.storage import INTERACTIVE, Progress, atomic_write, require_absent, storage_errors, to_json

if TYPE_CHECKING:
    from headwater.finetuning.model.fine_tuned import FineTuned, Prediction

_FORMATS = (".jsonl", ".csv")
# Labels of which one is right, and has a confidence.
_RANKED = ("class", "answer")
_SHOWN_EMPTY = 5  # row numbers in a note
_MOST_FOREIGN = 1_000  # different labels that are counted by name


def predict_file(
    model: Path,
    file: Path,
    out: Path,
    *,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    encoding: str = "",
    bom: bool = False,
    threshold: float = 0.0,
    device: str = "auto",
    progress: Progress = INTERACTIVE,
) -> dict[str, Any]:
    """Label the rows of `file` and write `out` atomically.

    Each row keeps its columns, in order, followed by `prediction`; of classes and choices by `confidence`, the
    most probable one's probability; and, unless it is a score, by the probability of each class: one column per
    class in .csv, `probabilities` in .jsonl. A choice's probabilities share one column, separated by spaces, since
    rows have different numbers of answers. A row without text gets an empty prediction. An added column gets an
    underscore if the file already has its name, and a note says so. `columns` names the columns of `file` that
    differ from the training file's. `encoding`: of `file`, if it is not UTF-8. `bom`: begin .csv with a byte-order
    mark, by which Excel knows UTF-8.

    threshold: a row whose most probable class or answer is less probable gets an empty prediction. A row that
    cannot be read has no line in `out`; the others are in order.

    Returns {"out", "columns", the names of the added columns, "rows", "empty"}, "unread" if there are such rows,
    with a threshold "unsure", the rows below it, and, if the file has labels, "labelled", the rows that also
    have a prediction, and their "accuracy" or, of scores, "mean_absolute_error", unless no label is the model's.
    Raises UsageError for an `out` that has another extension or is `file`, DataError for rows, FolderError for
    models, and for an `out` that exists.
    """
    form = out.suffix.lower()
    if form not in _FORMATS:
        raise UsageError(f"--out {out} has an unknown extension", expected=" or ".join(_FORMATS))
    if out.exists() and file.exists() and out.samefile(file):
        raise UsageError(f"--out {out} is the file to read", repair="Choose another --out")
    if bom and form != ".csv":
        raise UsageError(f"a byte-order mark does not belong into {form}", expected=".csv")
    require_absent(out)
    fine_tuned, named = _open(model, columns or {}, threshold, device)
    encoding = text_encoding(encoding) if encoding else ""
    read = read_table(
        file,
        fine_tuned.task,
        named,
        trained=fine_tuned.description.columns,
        need_label=False,
        keep=True,
        limit=limit,
        encoding=encoding,
        progress=progress,
    )
    labels, names = fine_tuned.labels, ["prediction"]
    if labels.target in _RANKED:
        names.append("confidence")
    if labels.target == "answer" or (form == ".jsonl" and labels.target != "score"):
        names.append("probabilities")
    elif labels.target != "score":  # whose levels are not classes
        names += [f"p({name})" for name in labels.output_names]
    added = [_free(name, read.available) for name in names]
    for wanted, name in zip(names, added, strict=True):
        if wanted != name:
            progress.note(f"{file} has a column {wanted!r}, which stays: the new one is {name!r}")
    tally = _Tally(labels, threshold, read.unread)
    progress.start("Predicting", unit="rows")
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as handle:
        rows, again = tee(map(Raw.composed, read.rows))
        pairs = zip(again, fine_tuned.predict(rows), strict=True)
        predicted = (tally.add(*pair, progress) for pair in pairs)
        lines = ((row.columns or {}, _values(labels, form, prediction)) for row, prediction in predicted)
        if form == ".jsonl":
            for cells, values in lines:
                content = {**cells, **dict(zip(added, values, strict=True))}
                handle.write(to_json(_finite(content), default=str))
        else:
            handle.write((codecs.BOM_UTF8 if bom else b"") + _line([*read.available, *added]))
            for cells, values in lines:
                own = [cells.get(column) for column in read.available]
                handle.write(_line([_plain(value) for value in [*own, *values]]))
    progress.finish(counted(tally.rows, "row"))
    for note in tally.notes():
        progress.note(note)
    return {"out": str(out), "columns": added, **tally.summary()}


def _open(model: Path, columns: Mapping[str, Any], threshold: float, device: str) -> tuple[FineTuned, Columns]:
    """Return the model and the user's columns; refuse options that do not fit it."""
    from headwater.finetuning.model.fine_tuned import FineTuned  # and torch

    fine_tuned = FineTuned.load(model, device=choose_device(device, training=False))
    labels = fine_tuned.labels
    if labels.target not in _RANKED and threshold:
        raise UsageError("--threshold needs a model of classes or choices", repair="Leave --threshold out")
    if labels.target == "labels" and isinstance(several := columns.get("label"), str):
        names = [name.strip() for name in several.split(",")]  # as in `finetune --label a,b`
        columns = {**columns, "label": names if len(names) > 1 else several}
    return fine_tuned, Columns.build(columns, source="--column")


@dataclass
class _Tally:
    """Counts of the rows that were predicted.

    empty, first_empty: rows without text, and the numbers of the first; foreign: rows whose labels the model does
    not have; foreign_names: the first of those labels, and their rows; shortened: rows that did not fit the
    context; error: of a score, the sum of the absolute errors; unread: rows that have no line in the output.
    """

    labels: Labels
    threshold: float
    unread: Unread
    rows: int = 0
    empty: int = 0
    first_empty: list[int] = field(default_factory=list)
    unsure: int = 0
    shortened: int = 0
    labelled: int = 0
    right: int = 0
    error: float = 0.0
    foreign: int = 0
    foreign_names: Counter[str] = field(default_factory=Counter)

    def add(self, row: Raw, prediction: Prediction, progress: Progress) -> tuple[Raw, Prediction]:
        """Count a row; return it with its prediction, which is empty below the threshold."""
        label = prediction.label
        if label is None:
            self.empty += 1
            if len(self.first_empty) < _SHOWN_EMPTY:
                self.first_empty.append(row.row)
        elif max(prediction.probabilities.values(), default=1) < self.threshold:
            prediction = replace(prediction, label=None)
            self.unsure += 1
        elif self.labels.target == "score":
            if (score := number_of(row.label)) is not None:
                self.labelled += 1
                self.error += abs(float(label) - score)  # type: ignore[arg-type]
        elif row.label is not None:
            self.labelled += 1
            self.right += self.labels.matches(row, label)
            names = label_set(row.label)
            if self.labels.names and names and not {*map(class_name, self.labels.names)} & {*names}:
                self.foreign += 1
                if names[0] in self.foreign_names or len(self.foreign_names) < _MOST_FOREIGN:
                    self.foreign_names[names[0]] += 1
        self.rows += 1
        self.shortened += prediction.cut > 0
        progress.advance(self.rows)
        return row, prediction

    def notes(self) -> Iterator[str]:
        """Yield notes on the rows for the user."""
        if self.unread.count:
            yield f"{counted(self.unread.count, 'row')} that cannot be read, without a line in the output"
        for error in self.unread.first:
            yield f"not in the output: {error.seen}"
        if self.shortened:
            yield f"shortened {counted(self.shortened, 'row')} that did not fit the model's context"
        if self.empty:
            shown = ", ".join(f"{number:,}" for number in self.first_empty)
            more = ", …" if self.empty > len(self.first_empty) else ""
            yield f"Rows without text, which get an empty prediction ({self.empty:,}): {shown}{more}"
        if self.foreign:
            names = listed(name for name, _ in self.foreign_names.most_common())
            both = f"the table has {names}, the model {listed(self.labels.names)}"
            if self.foreign == self.labelled:
                yield f"No label in the table is one of the model's: {both}; no accuracy is measured"
            else:
                rows = f"{self.foreign:,} of {self.labelled:,} rows"
                yield f"The labels of {rows} are not the model's and count as mistakes: {both}"

    def summary(self) -> dict[str, Any]:
        """Return the counts that `predict_file` returns."""
        summary: dict[str, Any] = {"rows": self.rows, "empty": self.empty}
        if self.unread.count:
            summary["unread"] = self.unread.count
        if self.threshold:
            summary["unsure"] = self.unsure
        if self.labelled > self.foreign:
            is_score = self.labels.target == "score"
            name = "mean_absolute_error" if is_score else "accuracy"
            total = self.error if is_score else self.right
            summary |= {"labelled": self.labelled, name: total / self.labelled}
        return summary


def _values(labels: Labels, form: str, prediction: Prediction) -> list[Any]:
    """Return the values of the added columns, as `predict_file` describes them; None without a prediction."""
    shares: Any = prediction.probabilities
    values: list[Any] = [prediction.label]
    if labels.target in _RANKED:
        values.append(max(shares.values(), default=None))
    if labels.target == "score":
        return values
    if form == ".jsonl":
        return [*values, shares or None]
    if labels.target == "answer":
        return [*values, " ".join(map(str, shares.values())) or None]
    return [*values, *(shares.get(name) for name in labels.output_names)]


def _free(name: str, columns: list[str]) -> str:
    while name in columns:
        name += "_"
    return name


def _line(fields: list[Any]) -> bytes:
    buffer = io.StringIO()
    # csv quotes a field that contains a character of the line end; "\r\n" makes it quote a lone "\r" too.
    csv.writer(buffer, lineterminator="\r\n").writerow(fields)
    return (buffer.getvalue().removesuffix("\r\n") + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return json.dumps(_finite(value), ensure_ascii=False, default=str)
    return value


def _finite(value: Any) -> Any:
    """Return a value with None for each NaN or infinity in it, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
