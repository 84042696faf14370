"""The user's own text as documents: .txt, .md, .jsonl, .json, .csv, .parquet, in any language.

A text file is one document, or several where it has `<|endoftext|>`. JSON Lines, JSON (a list), CSV and Parquet
give one document a row, from the field `text` or the one that is named (and `url`, `date`, `language` where they
are texts). All but Parquet may be compressed: .gz, .zst, .xz, .bz2. Any other file is read as plain text.

Line ends become "\\n" and blank lines at both ends of a document go; nothing else of a text is changed.
Files are read in blocks, so that one document at a time is in memory (JSON: the file). A file that is not UTF-8,
is binary or has no such field raises `Unusable`; a broken row is an error that names its place.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.corpus.folder import Document, make_id
from headwater.corpus.sources.compressed import CompressedFile
from headwater.errors import DataError
from headwater.storage.files import parse_json

SEPARATOR = "<|endoftext|>"
TEXT_SUFFIXES = (".txt", ".md")
_PACKED = (".gz", ".zst", ".xz", ".bz2")
_STREAMS = (*TEXT_SUFFIXES, ".jsonl", ".json", ".csv")
SUFFIXES = (*_STREAMS, ".parquet", *(suffix + packed for suffix in _STREAMS for packed in _PACKED))
_BLOCK_BYTES = 4 * 1024**2
_FIELDS = ("url", "date", "language")
_FIELD_CHARACTERS = 1 << 28  # of a CSV field: csv's own limit of 131,072 is shorter than a book
# Most characters of one text, line or JSON file that is compressed, or so many times the bytes of the file. Text
# packs to about a tenth of its size; a megabyte of a compression bomb unpacks to a gigabyte.
_UNPACKED_CHARACTERS = 1 << 28
_UNPACKED_RATIO = 100


class Unusable(DataError):
    """A file that has no text in a form that can be read: a build from its folder sets it aside."""


def read_text_file(path: Path, name: str, field: str = "text") -> Iterator[Document]:
    """Stream the documents of one file, `name` their source; `field` has the text of a row.

    Raises Unusable or another DataError when the file does not exist or cannot be used.
    """
    readers = {".jsonl": _jsonl_rows, ".json": _json_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}
    reader = readers.get(_suffix(path))
    for position, row in enumerate(reader(path, field) if reader else _text_rows(path)):
        text = _tidy(row[field if reader else "text"])
        if text:
            url, date, language = (_field(row.get(key)) for key in _FIELDS)
            yield Document(make_id(name, str(position), text), text, name, url, date, language)


def check_encoding(path: Path) -> None:
    """Read a file to its end; raise Unusable where it is not UTF-8 text (Parquet is not checked)."""
    if _suffix(path) != ".parquet":
        for _ in _decoded_blocks(path):
            pass


def _suffix(path: Path) -> str:
    """The suffix of a file name, without that of a compression."""
    stem = path.name.lower()
    for packed in _PACKED:
        stem = stem.removesuffix(packed)
    return Path(stem).suffix


def _field(value: Any) -> str:
    return without_surrogates(value) if isinstance(value, str) else ""


def _tidy(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n") if not text.isspace() else ""


def _text_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a plain text file, cut at SEPARATOR."""
    pending: list[str] = []
    size = 0
    tail = ""
    for block in _decoded_blocks(path):
        *whole, tail = (tail + block).split(SEPARATOR)
        for piece in whole:
            yield {"text": "".join(pending) + piece}
            pending, size = [], 0
        if len(tail) > len(SEPARATOR):  # what cannot be the beginning of a separator is set aside
            pending.append(tail[: -len(SEPARATOR)])
            size += len(pending[-1])
            _check_unpacked(path, size)
            tail = tail[-len(SEPARATOR) :]
    yield {"text": "".join(pending) + tail}


def _jsonl_rows(path: Path, field: str) -> Iterator[dict[str, Any]]:
    first = True
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path} has a line that is not JSON, line {number}: {error.msg}",
                expected=f'one object a line, as {{"{field}": "…"}}',
                repair="Correct or remove that line",
            ) from None
        yield _json_row(row, path, f"line {number}", field, first)
        first = False


def _json_rows(path: Path, field: str) -> Iterator[dict[str, Any]]:
    """The rows of a JSON file: a list of objects or texts, one object, or in fact one object a line."""
    blocks: list[str] = []
    size = 0
    for block in _decoded_blocks(path):
        blocks.append(block)
        size += len(block)
        _check_unpacked(path, size)
    content = "".join(blocks)
    try:
        found = parse_json(content)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            yield from _jsonl_rows(path, field)
            return
        raise Unusable(
            f"{path} is not JSON: {error.msg} in line {error.lineno}", repair="Correct that line"
        ) from None
    for number, row in enumerate(found if isinstance(found, list) else [found], 1):
        yield _json_row({field: row} if isinstance(row, str) else row, path, f"item {number}", field, number == 1)


def _json_row(row: Any, path: Path, place: str, field: str, first: bool) -> dict[str, Any]:
    """Check a row of JSON; one that is the `first` of its file tells whether the file has texts at all."""
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        others = [key for key, value in row.items() if isinstance(value, str)] if isinstance(row, dict) else []
        raise (Unusable if first else DataError)(
            f'{path} has no field "{field}" in {place}',
            expected=f'objects such as {{"{field}": "…"}}',
            repair=_other_field(others),
        )
    return row | {field: without_surrogates(row[field])}


def _csv_rows(path: Path, field: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(_FIELD_CHARACTERS)
    records = csv.reader(line + "\n" for line in _lines(path))
    try:
        columns = [name.strip() for name in next(records, [])]
        if field not in columns:
            shown = ", ".join(columns[:20]) or "nothing"
            raise Unusable(f'{path} has no column "{field}", only {shown}', repair=_other_field(columns))
        for record in records:
            if record and len(record) != len(columns):
                raise DataError(
                    f"{path} has {len(record)} fields in the row that ends in line {records.line_num}",
                    expected=f"{len(columns)}, one for each column",
                    repair="Put fields with commas, quotes or line ends in double quotes",
                )
            if record:
                yield dict(zip(columns, record, strict=True))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} in line {records.line_num}") from None


def _parquet_rows(path: Path, field: str) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            strings = [column.name for column in schema if _is_text(column.type)]
            if field not in strings:
                raise Unusable(
                    f'{path} has no text column "{field}", only {", ".join(schema.names) or "nothing"}',
                    repair=_other_field(strings),
                )
            columns = [field, *(name for name in _FIELDS if name in strings)]
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for row in batch.to_pylist():
                    if row[field] is not None:
                        yield row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}", repair="Make the file again") from None


def _other_field(names: list[str]) -> str:
    """Advice for a file without the field of the text, from the fields that it has."""
    return f"Name the field that has the text, as --text-field {names[0] if names else 'FIELD'}"


def _is_text(kind: Any) -> bool:
    """Whether a column holds texts, be it as categories (pandas) or views (Polars)."""
    import pyarrow

    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    return str(kind) in {"string", "large_string", "string_view"}


def _lines(path: Path) -> Iterator[str]:
    """Lines ended by "\\n" alone: other separators that str.splitlines knows are text inside JSON."""
    pending: list[str] = []
    size = 0
    for block in _decoded_blocks(path):
        *whole, rest = block.split("\n")
        for line in whole:
            yield "".join(pending) + line
            pending, size = [], 0
        pending.append(rest)
        size += len(rest)
        _check_unpacked(path, size)
    yield "".join(pending)


def _check_unpacked(path: Path, size: int) -> None:
    """Raise DataError where `size` characters, held as one text, are more than a compressed file can have."""
    if size <= _UNPACKED_CHARACTERS or path.suffix.lower() not in _PACKED:
        return
    most = max(_UNPACKED_CHARACTERS, _UNPACKED_RATIO * path.stat().st_size)
    if size > most:
        raise DataError(
            f"{path} unpacks to a text of more than {most:,} characters",
            expected=f"at most {_UNPACKED_RATIO} characters for a byte of the compressed file",
            repair="If it is not a compression bomb, unpack it first",
        )


def _decoded_blocks(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file in blocks, without a byte-order mark; raises DataError naming the line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 0
    first = True
    try:
        for block in _blocks(path):
            if b"\x00" in block:
                raise Unusable(f"{path} is a binary file", expected="UTF-8 text")
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line = lines + error.object.count(b"\n", 0, error.start) + 1
                raise Unusable(
                    f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}",
                    expected="UTF-8 text",
                    repair=f"Convert it, as with: iconv -f latin1 -t utf-8 {path} > converted.txt",
                ) from None
            if first:
                text, first = text.removeprefix("\ufeff"), False
            lines += text.count("\n")
            if text:
                yield text
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}",
            expected="a file",
            repair="Check the path and its permissions",
        ) from None


def _blocks(path: Path) -> Iterator[bytes]:
    """The plain bytes of a file in blocks, the last of them empty."""
    if path.suffix.lower() in _PACKED:
        file = CompressedFile(path)
        yield from file.blocks()
        if file.cut:
            raise DataError(file.cut, expected="a whole file", repair="Fetch or make it again")
        yield b""
        return
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK_BYTES):
            yield block
    yield b""


def without_surrogates(text: str) -> str:
    """JSON can spell half a surrogate pair, which no file can hold: it becomes U+FFFD, a split pair whole."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
