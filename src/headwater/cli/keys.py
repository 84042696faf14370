"""`--keys`: list the configuration keys that `--set` takes, with default, meaning and type."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from headwater.config import Config

_WORDS = {
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "date": "date as 2017-12-31",
    "path": "path",
    "object": "table",
}
_SHOWN = 24  # characters of a default


def keys_option(config: str) -> Any:
    """Return the option `--keys` of a command whose `--set` fills the class `config`, given as "module:Class"."""

    def show(is_set: bool) -> None:
        if is_set:
            module, _, name = config.partition(":")
            print(keys_text(getattr(importlib.import_module(module), name)))
            raise typer.Exit

    text = "List the keys of --set with default and meaning, and exit."
    return typer.Option("--keys", help=text, is_eager=True, callback=show)


def keys_text(config: type[Config]) -> str:
    """Return a line for each key: name, default, meaning and type; wrapped on a terminal."""
    rows = list(_rows(config, ""))
    names, defaults = (max(len(row[column]) for row in rows) for column in (0, 1))
    indent = names + defaults + 4
    width = max(indent + 40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 10_000
    lines = []
    for name, default, meaning in rows:
        start = f"{name:{names}}  {default:{defaults}}  "
        lines.append(textwrap.fill(start + meaning, width, subsequent_indent=" " * indent))
    return "\n".join(lines)


def _rows(config: type[Config], prefix: str) -> Iterator[tuple[str, str, str]]:
    from headwater.config import tables_of

    tables, schema = tables_of(config), config.model_json_schema()
    for key in config.model_fields:
        if key in tables:
            for name, shown, meaning in _rows(tables[key], f"{prefix}{key}."):
                yield name, "-" if key in config.tables else shown, meaning  # a preset has the defaults
            continue
        # A subclass that changes only the default inherits the description.
        fields = (base.model_fields.get(key) for base in config.__mro__ if hasattr(base, "model_fields"))
        description = next((field.description for field in fields if field and field.description), "")
        entry = schema["properties"][key]
        yield prefix + key, _default(entry.get("default")), f"{description} ({_type(entry)})"


def _default(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _type(entry: Mapping[str, Any]) -> str:
    """Return the type of an entry of a JSON schema, in words."""
    if "anyOf" in entry:
        return " or ".join(_type(option) for option in entry["anyOf"] if option.get("type") != "null")
    if "enum" in entry or "const" in entry:
        return ", ".join(map(str, entry.get("enum", [entry.get("const")])))
    if entry["type"] == "array":
        return f"list of: {_type(entry['items'])}"
    return _WORDS.get(entry.get("format", ""), _WORDS[entry["type"]])
