"""Read tab-separated files of labelled sets."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning import Raw


def tab_separated(
    texts: Sequence[str],
    label: str | None,
    *,
    header: Sequence[str] | None = None,
    quoted: bool = False,
    names: Mapping[str, str] | None = None,
    has_broken_rows: bool = False,
) -> Callable[[Path], Iterator[Raw]]:
    """Return a reader of tab-separated files.

    texts, label: names of columns (label None: hidden). header: the columns of a file without a header line.
    quoted: quotes are CSV's, else literal. names: class names by the file's labels. has_broken_rows: rows of too
    few fields, the pieces of a row with a newline in a text, are yielded without texts instead of refused.
    """

    def read(path: Path) -> Iterator[Raw]:
        records = _records(path, quoted)
        columns = list(header) if header else [name.strip() for name in next(records, [])]
        missing = [name for name in [*texts, *([label] if label else [])] if name not in columns]
        if missing:
            raise DataError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, columns))}")
        for number, record in enumerate(records, 1):
            if len(record) < len(columns):
                if has_broken_rows:
                    yield Raw((), None, number)
                    continue
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}",
                    expected=f"{len(columns)} or more",
                )
            row = dict(zip(columns, record, strict=False))
            value = row[label] if label else None
            if value is not None and names is not None:
                value = _named(value, names, path, number)
            yield Raw(tuple(row[name] for name in texts), None if value in {"", "-"} else value, number)

    return read


def _named(value: str, names: Mapping[str, str], path: Path, number: int) -> str:
    if value not in names:
        raise DataError(
            f"{path} row {number:,} has the label {value!r}", expected=", ".join(repr(name) for name in names)
        )
    return names[value]


def _text_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as handle:
        yield from handle


def _records(path: Path, quoted: bool) -> Iterator[list[str]]:
    if quoted:
        yield from csv.reader(_text_lines(path), delimiter="\t", strict=True)
        return
    for line in _text_lines(path):
        if stripped := line.rstrip("\r\n"):
            yield stripped.split("\t")
