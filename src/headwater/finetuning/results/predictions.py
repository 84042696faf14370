"""Write predictions to files: the columns of the input, then the prediction and its probabilities."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.finetuning.rows.row import Raw, Target
from headwater.storage import to_json, write_json_lines

if TYPE_CHECKING:
    from headwater.finetuning.model.fine_tuned import FineTuned, Prediction

# The separator of each format with one.
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (".jsonl", *_SEPARATORS, ".parquet")
_BATCH_ROWS = 2_048
# Labels whose predictions have a first and a second choice.
RANKED = ("class", "answer")
# What to do where a format cannot hold a value.
_ANOTHER = "Choose an --out that ends in .csv or .jsonl"


@dataclass(frozen=True)
class PredictionTable:
    """Rows with their predictions in one of `FORMATS`: the columns of the input, then what `added` names.

    together: whether one column has the probabilities of all classes or answers; top: of the most probable ones
    alone, if it is not 0. types: of the columns of the input, in Parquet.
    """

    form: str
    columns: list[str]
    added: list[str]
    together: bool
    target: Target
    bom: bool = False
    top: int = 0
    types: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def build(
        cls, form: str, fine_tuned: FineTuned, columns: list[str], *, bom: bool, top: int = 0
    ) -> PredictionTable:
        """Return the table for input with these columns."""
        target = fine_tuned.labels.target
        together = target == "answer" or form == ".jsonl" or top > 0
        names = ["prediction", *(["confidence", "second", "second_confidence"] if target in RANKED else [])]
        if target != "score":  # whose levels are not classes
            names += ["probabilities"] if together else [f"p({name})" for name in fine_tuned.labels.output_names]
        return cls(form, columns, [_free(name, columns) for name in names], together, target, bom, top)

    def check(self, rows: Iterable[Raw]) -> None:
        """Raise DataError for a row that the format cannot hold: before hours of work, not after."""
        if self.form == ".tsv":
            for row in rows:
                if any(mark in str(value) for value in self._fields(row) for mark in "\t\n"):
                    raise DataError(
                        f"row {row.row:,} has a field with a tab or a line end, which .tsv cannot hold",
                        repair=_ANOTHER,
                    )
        elif self.form == ".parquet":
            self.types.update(_column_types(rows, self.columns))

    def write(self, handle: IO[bytes], rows: Iterable[tuple[Raw, Prediction]]) -> None:
        """Write rows; the added fields are empty if there is no prediction."""
        if self.form == ".parquet":
            self._write_parquet(handle, rows)
        else:
            handle.writelines(self._json_lines(rows) if self.form == ".jsonl" else self._separated(rows))

    def _json_lines(self, rows: Iterable[tuple[Raw, Prediction]]) -> Iterator[bytes]:
        for row, prediction in rows:
            added = dict(zip(self.added, self._values(prediction), strict=True))
            yield to_json(_finite({**(row.columns or {}), **added}), default=str)

    def _separated(self, rows: Iterable[tuple[Raw, Prediction]]) -> Iterator[bytes]:
        line = partial(_line, separator=_SEPARATORS[self.form])
        yield (codecs.BOM_UTF8 if self.bom else b"") + line([*self.columns, *self.added])
        for row, prediction in rows:
            added = ["" if value is None else _plain(value) for value in self._values(prediction)]
            yield line([*self._fields(row), *added])

    def _write_parquet(self, handle: IO[bytes], rows: Iterable[tuple[Raw, Prediction]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"labels": pa.list_(pa.string()), "score": pa.float64(), "answer": pa.int64()}
        kind, share = kinds.get(self.target, pa.string()), pa.float64()
        added = [kind, *([share, kind, share] if self.target in RANKED else [])]
        added += [pa.string() if self.together else share] * (len(self.added) - len(added))
        schema = pa.schema([*self.types.items(), *zip(self.added, added, strict=True)])
        iterator = iter(rows)
        with pq.ParquetWriter(handle, schema) as writer:
            while window := list(islice(iterator, _BATCH_ROWS)):
                lines = [[(row.columns or {}).get(name) for name in self.types] for row, _ in window]
                lines = [line + self._values(one) for line, (_, one) in zip(lines, window, strict=True)]
                columns = zip(*lines, strict=True)
                arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
                writer.write_table(pa.table(arrays, schema))

    def _fields(self, row: Raw) -> list[Any]:
        return [_plain((row.columns or {}).get(column)) for column in self.columns]

    def _values(self, prediction: Prediction) -> list[Any]:
        """Return the values of the added columns; None without a prediction."""
        shares = prediction.probabilities
        if prediction.label is None and not shares:
            return [None] * len(self.added)
        ranked = sorted(shares.items(), key=lambda one: -one[1])
        values = [prediction.label]
        if self.target in RANKED:
            (_, confidence), (second, next_one) = ranked[:2]
            values += [confidence, int(second) if self.target == "answer" else second, next_one]
        if self.target == "score":
            return values
        if self.top:
            shares = dict(ranked[: self.top])
        if self.form == ".jsonl":
            return [*values, shares or None]
        if self.top:
            return [*values, _plain(shares)]
        return [*values, *([" ".join(map(str, shares.values()))] if self.together else shares.values())]


def _free(name: str, columns: list[str]) -> str:
    while name in columns:
        name += "_"
    return name


def _line(fields: list[Any], separator: str) -> bytes:
    buffer = io.StringIO()
    # csv quotes a field that contains a character of the line end; "\r\n" makes it quote a lone "\r" too.
    csv.writer(buffer, delimiter=separator, lineterminator="\r\n").writerow(fields)
    return (buffer.getvalue().removesuffix("\r\n") + "\n").encode()


def _column_types(rows: Iterable[Raw], columns: list[str]) -> dict[str, Any]:
    """Return the type of each column in Parquet, which all rows decide."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.null()) for name in columns])
    iterator = iter(rows)
    while window := list(islice(iterator, _BATCH_ROWS)):
        for name in columns:
            try:
                kind = pa.array([(row.columns or {}).get(name) for row in window]).type
                schema = pa.unify_schemas([schema, pa.schema([(name, kind)])], promote_options="permissive")
            except (pa.ArrowException, OverflowError):
                raise DataError(
                    f"the column {name!r} has values of different types near row {window[0].row:,}, which "
                    ".parquet cannot hold",
                    repair=_ANOTHER,
                ) from None
    if empty := next((one.name for one in schema if _has_empty_struct(one.type)), None):
        raise DataError(
            f"the column {empty!r} has objects without keys, which .parquet cannot hold", repair=_ANOTHER
        )
    return {one.name: one.type for one in schema}


def _has_empty_struct(kind: Any) -> bool:
    """Return whether a type of pyarrow has an object without keys anywhere."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return (str(kind).startswith("struct") and not inner) or any(map(_has_empty_struct, inner))


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
