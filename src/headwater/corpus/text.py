"""The user's own text as documents: .txt, .md, .jsonl, .parquet, in any language.

Decided here: a text file is one document, or several where it holds `<|endoftext|>`; JSON Lines and Parquet
give one document a row, from the field `text` (and `url`, `date`, `language` where they are texts). A file
is read whatever its suffix, as plain text where that says nothing.

Line ends become "\\n" and blank lines at both ends of a document go; nothing else of a text is changed.
Files are read in blocks, so that one document at a time is in memory. Text that is not UTF-8, binary files
and broken rows are errors that name the place, never skipped: a source that the user names is meant to be
used.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.corpus.folder import Document, make_id
from headwater.errors import DataError
from headwater.storage.files import decode_text, parse_json

SEPARATOR = "<|endoftext|>"
TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")
_BLOCK_BYTES = 4 * 1024**2
_FIELDS = ("url", "date", "language")


def read_text_file(path: Path, name: str) -> Iterator[Document]:
    """Stream the documents of one file, `name` their source.

    Raises DataError when it does not exist or cannot be used.
    """
    suffix = path.suffix.lower()
    rows = {".jsonl": _jsonl_rows, ".parquet": _parquet_rows}.get(suffix, _text_rows)(path)
    for position, row in enumerate(rows):
        text = _tidy(row["text"])
        if text:
            url, date, language = (_field(row.get(key)) for key in _FIELDS)
            yield Document(make_id(name, str(position), text), text, name, url, date, language)


def _field(value: Any) -> str:
    return without_surrogates(value) if isinstance(value, str) else ""


def _tidy(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n") if not text.isspace() else ""


def _text_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a plain text file, cut at SEPARATOR."""
    pending: list[str] = []
    tail = ""
    for block in _decoded_blocks(path):
        *whole, tail = (tail + block).split(SEPARATOR)
        for piece in whole:
            yield {"text": "".join(pending) + piece}
            pending = []
        if len(tail) > len(SEPARATOR):  # what cannot be the beginning of a separator is set aside
            pending.append(tail[: -len(SEPARATOR)])
            tail = tail[-len(SEPARATOR) :]
    yield {"text": "".join(pending) + tail}


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path} has a line that is not JSON, line {number}: {error.msg}",
                expected='one object a line, as {"text": "…"}',
                repair="Correct or remove that line",
            ) from None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise DataError(
                f'{path} has no field "text" in line {number}',
                expected='one object a line, as {"text": "…"}',
                repair="Rename the field that holds the text",
            )
        row["text"] = without_surrogates(row["text"])
        yield row


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            strings = {field.name for field in schema if _is_text(field.type)}
            if "text" not in strings:
                raise DataError(
                    f'{path} has no text column "text", only {", ".join(schema.names) or "nothing"}',
                    repair="Rename the column that holds the text",
                )
            columns = ["text", *(name for name in _FIELDS if name in strings)]
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for row in batch.to_pylist():
                    if row["text"] is not None:
                        yield row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}", repair="Make the file again") from None


def _is_text(kind: Any) -> bool:
    """Whether a column holds texts, be it as categories (pandas) or views (Polars)."""
    import pyarrow

    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    return str(kind) in {"string", "large_string", "string_view"}


def _lines(path: Path) -> Iterator[str]:
    """Lines ended by "\\n" alone: other separators that str.splitlines knows are text inside JSON."""
    pending: list[str] = []
    for block in _decoded_blocks(path):
        *whole, rest = block.split("\n")
        for line in whole:
            yield "".join(pending) + line
            pending = []
        pending.append(rest)
    yield "".join(pending)


def _decoded_blocks(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file in blocks, without a byte-order mark; raises DataError naming the line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 0
    try:
        with path.open("rb") as handle:
            first = True
            while True:
                block = handle.read(_BLOCK_BYTES)
                if b"\x00" in block:
                    decode_text(b"\x00", path)  # raises the error that says what a binary file is
                try:
                    text = decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    line = lines + error.object.count(b"\n", 0, error.start) + 1
                    raise DataError(
                        f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}",
                        expected="UTF-8 text",
                        repair=f"Convert it, as with: iconv -f latin1 -t utf-8 {path} > converted.txt",
                    ) from None
                if first:
                    text, first = text.removeprefix("\ufeff"), False
                lines += text.count("\n")
                if text:
                    yield text
                if not block:
                    return
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}",
            expected="a file",
            repair="Check the path and its permissions",
        ) from None


def without_surrogates(text: str) -> str:
    """JSON can spell half a surrogate pair, which no file can hold: it becomes U+FFFD, a split pair whole."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
