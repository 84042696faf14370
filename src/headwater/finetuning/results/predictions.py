"""Write predictions to files: the columns of the input, then the prediction and its probabilities."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.finetuning.model.fine_tuned import FineTuned, Prediction
from headwater.finetuning.rows.row import Raw, Target
from headwater.storage import to_json, write_json_lines

# The separator of each format with one.
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (".jsonl", *_SEPARATORS, ".parquet")
_BATCH_ROWS = 2_048


class PredictionTable(Protocol):
    """Rows with their predictions, as one format writes them."""

    def check(self, read: Callable[[], Iterable[Raw]]) -> None:
        """Read the rows if any could not be written; raise DataError for one: before hours of work, not after."""

    def begin(self, handle: IO[bytes]) -> None:
        """Write what comes before the rows."""

    def add(self, row: Raw, prediction: Prediction) -> None:
        """Write one row; its added fields are empty if it has no prediction."""

    def end(self) -> None:
        """Write what comes after the rows."""


def prediction_table(form: str, fine_tuned: FineTuned, columns: list[str], *, bom: bool) -> PredictionTable:
    """Return the table of a format, one of `FORMATS`, for input with these columns."""
    together = fine_tuned.task == "choice" or form == ".jsonl"  # one field has all probabilities of a row
    names = fine_tuned.labels.output_names
    added = [_free(name, columns) for name in _added(names, together)]
    if form == ".jsonl":
        return _JsonLines(added)
    if form == ".parquet":
        return _Parquet(columns, added, together, fine_tuned.labels.target)
    return _Separated(columns, added, together, _SEPARATORS[form], bom)


def _added(names: list[str], together: bool) -> list[str]:
    return ["prediction", *(["probabilities"] if together else [f"p({name})" for name in names])]


def _free(name: str, columns: list[str]) -> str:
    while name in columns:
        name += "_"
    return name


class _JsonLines:
    def __init__(self, added: list[str]) -> None:
        self.added = added

    def check(self, read: Callable[[], Iterable[Raw]]) -> None:
        pass

    def begin(self, handle: IO[bytes]) -> None:
        self.handle = handle

    def add(self, row: Raw, prediction: Prediction) -> None:
        values = (prediction.label, prediction.probabilities or None)
        added = dict(zip(self.added, values, strict=True))
        self.handle.write(to_json(_finite({**(row.columns or {}), **added}), default=str))

    def end(self) -> None:
        pass


class _Separated:
    def __init__(self, columns: list[str], added: list[str], together: bool, separator: str, bom: bool) -> None:
        self.columns, self.added, self.together = columns, added, together
        self.separator, self.bom = separator, bom

    def check(self, read: Callable[[], Iterable[Raw]]) -> None:
        if self.separator == "\t":
            for row in read():
                self._fields(row)

    def begin(self, handle: IO[bytes]) -> None:
        self.handle = handle
        handle.write((codecs.BOM_UTF8 if self.bom else b"") + self._line([*self.columns, *self.added]))

    def add(self, row: Raw, prediction: Prediction) -> None:
        added = _added_values(prediction, self.together, len(self.added))
        self.handle.write(
            self._line([*self._fields(row), *("" if value is None else _plain(value) for value in added)])
        )

    def end(self) -> None:
        pass

    def _fields(self, row: Raw) -> list[Any]:
        """Return the fields of the input; raise DataError if a .tsv cannot hold one."""
        fields = [_plain((row.columns or {}).get(column)) for column in self.columns]
        if self.separator == "\t" and any(mark in str(field) for field in fields for mark in "\t\n"):
            raise DataError(
                f"row {row.row:,} has a field with a tab or a line end, which .tsv cannot hold",
                repair="Choose an --out that ends in .csv or .jsonl",
            )
        return fields

    def _line(self, fields: list[Any]) -> bytes:
        buffer = io.StringIO()
        # csv quotes a field that contains a character of the line end; "\r\n" makes it quote a lone "\r" too.
        csv.writer(buffer, delimiter=self.separator, lineterminator="\r\n").writerow(fields)
        return (buffer.getvalue().removesuffix("\r\n") + "\n").encode()


class _Parquet:
    def __init__(self, columns: list[str], added: list[str], together: bool, target: Target) -> None:
        self.columns, self.added, self.together, self.target = columns, added, together, target

    def check(self, read: Callable[[], Iterable[Raw]]) -> None:
        """Find the types of the columns, which all rows decide."""
        import pyarrow as pa

        schema = pa.schema([])
        iterator = iter(read())
        while rows := list(islice(iterator, _BATCH_ROWS)):
            for name in self.columns:
                try:
                    kind = pa.array([(row.columns or {}).get(name) for row in rows]).type
                    schema = pa.unify_schemas([schema, pa.schema([(name, kind)])], promote_options="permissive")
                except (pa.ArrowException, OverflowError):
                    raise DataError(
                        f"the column {name!r} has values of different types near row {rows[0].row:,}, which "
                        ".parquet cannot hold",
                        repair="Choose an --out that ends in .csv or .jsonl",
                    ) from None
        types = {field.name: field.type for field in schema}
        if empty := next((name for name, kind in types.items() if _has_empty_struct(kind)), None):
            raise DataError(
                f"the column {empty!r} has objects without keys, which .parquet cannot hold",
                repair="Choose an --out that ends in .csv or .jsonl",
            )
        self.types = {name: types.get(name, pa.null()) for name in self.columns}

    def begin(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.writer: Any = None
        self.waiting: list[tuple[Raw, list[Any]]] = []

    def add(self, row: Raw, prediction: Prediction) -> None:
        self.waiting.append((row, _added_values(prediction, self.together, len(self.added))))
        if len(self.waiting) == _BATCH_ROWS:
            self._write()

    def end(self) -> None:
        if self.waiting or self.writer is None:
            self._write()
        self.writer.close()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {
            name: pa.array([(row.columns or {}).get(name) for row, _ in self.waiting], kind)
            for name, kind in self.types.items()
        }
        share = pa.string() if self.together else pa.float64()
        kinds = {"labels": pa.list_(pa.string()), "score": pa.float64(), "answer": pa.int64()}
        for place, name in enumerate(self.added):
            values = [added[place] for _, added in self.waiting]
            arrays[name] = pa.array(values, share if place else kinds.get(self.target, pa.string()))
        if self.writer is None:
            self.schema = pa.schema([(name, array.type) for name, array in arrays.items()])
            self.writer = pq.ParquetWriter(self.handle, self.schema)
        self.writer.write_table(pa.table(arrays).cast(self.schema))
        self.waiting = []


def _has_empty_struct(kind: Any) -> bool:
    """Return whether a type of pyarrow has an object without keys anywhere."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return (str(kind).startswith("struct") and not inner) or any(map(_has_empty_struct, inner))


def _added_values(prediction: Prediction, together: bool, count: int) -> list[Any]:
    """Return the label and the probabilities of a row for its added columns; None without a prediction."""
    shares = prediction.probabilities
    if prediction.label is None and not shares:
        return [None] * count
    return [prediction.label, *([" ".join(map(str, shares.values()))] if together else shares.values())]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return json.dumps(_finite(value), ensure_ascii=False, default=str)
    return value


def _finite(value: Any) -> Any:
    """Return a value with None for each NaN or infinity in it, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_predictions(
    fine_tuned: FineTuned, part: str, rows: Sequence[Raw], probabilities: npt.NDArray[np.float32], work: Path
) -> None:
    """Write predictions-PART.jsonl: one line a row, with its texts, label, prediction and probabilities."""

    def lines() -> Iterator[dict[str, Any]]:
        for row, share in zip(rows, probabilities, strict=True):
            answers = len(row.segments) - 2 if fine_tuned.task == "choice" else len(share)
            prediction = fine_tuned.prediction(row.row, share[:answers])
            if row.is_empty(fine_tuned.task):
                prediction = Prediction(row.row, None, {})
            yield {
                "row": row.row,
                "texts": list(row.segments),
                "label": row.label,
                "prediction": prediction.label,
                "probabilities": prediction.probabilities,
            }

    write_json_lines(work / f"predictions-{part}.jsonl", lines())
