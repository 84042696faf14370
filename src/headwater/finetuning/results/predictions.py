"""Write predictions to files: the columns of the input, then the prediction and its probabilities."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.row import Raw, Target
from headwater.storage import to_json, write_json_lines

if TYPE_CHECKING:
    from headwater.finetuning.model.fine_tuned import FineTuned, Prediction

FORMATS = (".jsonl", ".csv")
# Labels of which one is right, and has a confidence.
RANKED = ("class", "answer")


@dataclass(frozen=True)
class PredictionTable:
    """Rows with their predictions in one of `FORMATS`: the columns of the input, then what `added` names.

    together: whether one column has the probabilities of all classes or answers. renamed: the added columns whose
    names the input has, and the names that they have instead.
    """

    form: str
    columns: list[str]
    added: list[str]
    together: bool
    target: Target
    bom: bool
    renamed: list[tuple[str, str]]

    @classmethod
    def build(cls, form: str, fine_tuned: FineTuned, columns: list[str], *, bom: bool) -> PredictionTable:
        """Return the table for input with these columns."""
        target = fine_tuned.labels.target
        together = target == "answer" or form == ".jsonl"
        names = ["prediction", *(["confidence"] if target in RANKED else [])]
        if target != "score":  # whose levels are not classes
            names += ["probabilities"] if together else [f"p({name})" for name in fine_tuned.labels.output_names]
        added = [_free(name, columns) for name in names]
        renamed = [(name, new) for name, new in zip(names, added, strict=True) if name != new]
        return cls(form, columns, added, together, target, bom, renamed)

    def write(self, handle: IO[bytes], rows: Iterable[tuple[Raw, Prediction]]) -> None:
        """Write rows; the added fields are empty if there is no prediction."""
        handle.writelines(self._json_lines(rows) if self.form == ".jsonl" else self._csv_lines(rows))

    def _json_lines(self, rows: Iterable[tuple[Raw, Prediction]]) -> Iterator[bytes]:
        for row, prediction in rows:
            added = dict(zip(self.added, self._values(prediction), strict=True))
            yield to_json(_finite({**(row.columns or {}), **added}), default=str)

    def _csv_lines(self, rows: Iterable[tuple[Raw, Prediction]]) -> Iterator[bytes]:
        yield (codecs.BOM_UTF8 if self.bom else b"") + _line([*self.columns, *self.added])
        for row, prediction in rows:
            own = [_plain((row.columns or {}).get(column)) for column in self.columns]
            added = ["" if value is None else _plain(value) for value in self._values(prediction)]
            yield _line([*own, *added])

    def _values(self, prediction: Prediction) -> list[Any]:
        """Return the values of the added columns; None without a prediction."""
        shares = prediction.probabilities
        if prediction.label is None and not shares:
            return [None] * len(self.added)
        values: list[Any] = [prediction.label]
        if self.target in RANKED:
            values.append(max(shares.values()))
        if self.target == "score":
            return values
        if self.form == ".jsonl":
            return [*values, shares or None]
        return [*values, *([" ".join(map(str, shares.values()))] if self.together else shares.values())]


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


def write_predictions(
    fine_tuned: FineTuned, part: str, rows: Sequence[Raw], probabilities: npt.NDArray[np.float32], work: Path
) -> None:
    """Write predictions-PART.jsonl: a row's texts, label, prediction and, unless it is a score, probabilities."""

    def lines() -> Iterator[dict[str, Any]]:
        for row, share in zip(rows, probabilities, strict=True):
            answers = len(row.segments) - 2 if fine_tuned.task == "choice" else len(share)
            prediction = fine_tuned.prediction(row.row, share[:answers])
            empty = row.is_empty(fine_tuned.task)
            line = {
                "row": row.row,
                "texts": list(row.segments),
                "label": row.label,
                "prediction": None if empty else prediction.label,
            }
            is_score = fine_tuned.labels.target == "score"
            yield line if is_score else line | {"probabilities": {} if empty else prediction.probabilities}

    write_json_lines(work / f"predictions-{part}.jsonl", lines())
