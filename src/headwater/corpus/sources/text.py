"""Read the user's own text as documents: text files and tables, in any language.

A text file is one document, or several separated by `<|endoftext|>`. Tables have one document a row, in the column
`text` or another that the user names, by its number if the table has no header (and `url`, `date`, `language`, if
these are texts). Any other file is read as plain text.

Line ends become "\\n" and blank lines at both ends of a document are removed; the text is otherwise unchanged.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from headwater.corpus.folder import Document, Tally, make_id
from headwater.errors import DataError
from headwater.reading import (
    compose,
    is_compressed,
    is_table,
    open_table,
    split_text,
    unpacked_suffix,
)

SEPARATOR = "<|endoftext|>"
TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = (*TEXT_SUFFIXES, ".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
BINARY = (".parquet", ".arrow", ".xlsx")
_FIELDS = ("url", "date", "language")


def holds_text(path: PurePath) -> bool:
    """Return whether a file, by its name, has text that `read_text_file` reads."""
    suffix = unpacked_suffix(path)
    return (suffix in TEXT_SUFFIXES or is_table(path)) and not (suffix in BINARY and is_compressed(path))


def read_text_file(
    path: Path,
    name: str,
    field: str | None = None,
    encoding: str | None = None,
    left_out: Tally | None = None,
) -> Iterator[Document]:
    """Stream the documents of one file, `name` their source.

    field: the column of the text; None if it must be `text`, since the user cannot name another. encoding: as in
    `text_blocks`. left_out: counts the rows without text.

    Raises DataError for a file that cannot be read as text, and for a broken row.
    """
    texts: Iterator[tuple[int, str | None, Mapping[str, Any]]]
    if is_table(path):
        texts = _table_texts(path, field, encoding, left_out)
    else:
        texts = ((number, text, {}) for number, text in enumerate(split_text(path, SEPARATOR, encoding), 1))
    position = -1  # null texts are not counted
    for number, text, row in texts:
        position += text is not None
        if text := _tidy(text or ""):
            values = (row.get(key) for key in _FIELDS)
            url, date, language = (value if isinstance(value, str) else "" for value in values)
            yield Document(make_id(name, str(position), text), text, name, url, date, language)
        elif row and left_out is not None:
            left_out.add("rows without text", f"{name}: row {number:,}")


def _tidy(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n") if not text.isspace() else ""


def _table_texts(
    path: Path, named: str | None, encoding: str | None, left_out: Tally | None
) -> Iterator[tuple[int, str | None, Mapping[str, Any]]]:
    """Yield the number, the text, which may be null, and the values of each row of a table.

    Raises the error of the first broken row if there is no other.
    """
    column = named or "text"
    first_broken: DataError | None = None
    usable = False

    def on_broken(error: DataError) -> None:
        nonlocal first_broken
        first_broken = first_broken or error
        if left_out is None:
            raise error
        left_out.add("rows that cannot be read", error.seen.replace(str(path), path.name))

    table = open_table(path, (column, *_FIELDS), encoding, (column,), on_broken)
    if left_out is not None:
        for note in table.notes:
            left_out.add("workbooks with other sheets", note)
    if column not in table.columns:  # it may be spelled in the other Unicode form
        column = next((name for name in table.columns if compose(name) == compose(column)), column)
    missing = (
        _missing_column(table, path, column, named) if table.columns and column not in table.columns else None
    )
    if missing is not None and table.uniform:
        raise missing
    for number, row in table.rows:
        text: Any = row.get(column, False)
        if text is None or isinstance(text, str):
            usable = True
            yield number, text, row
        else:
            seen = f'{path} row {number:,} has no text in "{column}"'
            on_broken(DataError(seen, expected=f'a text, as in {{"{column}": "…"}}'))
    if not usable and (error := missing or first_broken) is not None:
        raise error


def _missing_column(table: Any, path: Path, column: str, named: str | None) -> DataError:
    """Return the error for a table without the column of the text, `named` if the user can name it."""
    if (first := table.first_row()) is not None:
        longest = 1 + max(range(len(first)), key=lambda number: len(first[number]))
        repair = f"Name the column of the text by its number, as --text-field {longest}"
        return DataError(
            f"{path} has no header: its first row is {first[0][:40]!r}",
            expected="names of the columns, or the number of the column",
            repair=repair if named else 'Write a first line that names the column of the text "text"',
        )
    likely = "text" if "text" in table.columns else (table.texts or ["FIELD"])[0]
    repair = f"Name the column of the text, as --text-field {shlex.quote(likely)}"
    shown = ", ".join(name[:40] for name in table.columns[:20]) + (", …" if len(table.columns) > 20 else "")
    return DataError(
        f'{path} has no text column "{column}", only {shown}',
        repair=repair if named else 'Rename the column of the text to "text"',
    )
