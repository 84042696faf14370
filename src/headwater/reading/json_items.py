"""Read the objects of JSON and JSON Lines files: rows, columns, rows by id, or `{"data": rows}`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headwater.errors import DataError
from headwater.reading.file_limits import FileLimits
from headwater.reading.files import AnyFile, large_json, parse_json
from headwater.reading.table import OnBroken
from headwater.reading.text import check_unpacked, read_lines, text_blocks


def json_lines(path: AnyFile, encoding: str | None, on_broken: OnBroken) -> Iterator[tuple[str, Any]]:
    """Yield each line's place in messages, and its value; skip a line that is not JSON if `on_broken` returns."""
    for number, line in enumerate(read_lines(path, encoding), 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except json.JSONDecodeError as failure:
            seen = f"{path} line {number:,} is not JSON: {failure.msg}"
            repair = "Correct or remove that line"
            on_broken(DataError(seen, expected="one JSON object a line", repair=repair))
        else:
            yield f"line {number:,}", value


def json_items(path: AnyFile, column: str, encoding: str | None, on_broken: OnBroken) -> Iterator[tuple[str, Any]]:
    """Yield each item's place in messages, and the item.

    The file has a list of objects or texts, one object, objects that are one a line, columns by name (as
    `DataFrame.to_json` writes them, or lists), objects by id, or an object with one list of objects.
    """
    blocks: list[str] = []
    size = 0
    for block in text_blocks(path, encoding=encoding):
        blocks.append(block)
        size += len(block)
        check_unpacked(path, size)
        if size > FileLimits.JSON_BYTES and not _is_json(blocks[0].partition("\n")[0]):
            raise large_json(path, "Save a table as JSON Lines (.jsonl), which is read line by line")
        if size > FileLimits.JSON_BYTES:
            yield from json_lines(path, encoding, on_broken)
            return
    try:
        content = parse_json("".join(blocks))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            yield from json_lines(path, encoding, on_broken)
            return
        raise DataError(
            f"{path} is not JSON: {error.msg} in line {error.lineno}", repair="Correct that line"
        ) from None
    for number, item in enumerate(_rows(content), 1):
        yield f"item {number:,}", {column: item} if isinstance(item, str) else item


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except json.JSONDecodeError:
        return False
    return True


def _rows(content: Any) -> list[Any]:
    """Return the rows of a JSON value; its shape tells whether it has columns, rows by id, or is one row."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return [content]
    parts = list(content.values())
    if parts and _all(parts, dict):
        return _of_objects(content)
    if len(parts) > 1 and _all(parts, list) and len({*map(len, parts)}) == 1:
        return [dict(zip(content, values, strict=True)) for values in zip(*parts, strict=True)]
    tables = [part for part in parts if part and _all(part, dict)]
    if len(tables) == 1 and not any(isinstance(part, str) for name, part in content.items() if name != "version"):
        return tables[0]  # as {"data": rows}
    return [content]


def _all(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _of_objects(content: dict[str, dict[str, Any]]) -> list[Any]:
    """Return the rows of an object of objects: columns, whose keys pandas numbers, or rows by number or by id."""
    parts = list(content.values())
    keys = list(parts[0])
    if all(map(str.isdecimal, keys)) and all(list(part) == keys for part in parts):
        return [dict(zip(content, values, strict=True)) for values in zip(*map(dict.values, parts), strict=True)]
    if not set[str].intersection(*map(set, parts)):
        return [content]
    if all(map(str.isdecimal, content)):
        return parts
    return [{"id": name, **part} for name, part in content.items()]
