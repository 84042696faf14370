"""`--keys`: list the configuration keys that `--set` takes, with default, meaning and type."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

if TYPE_CHECKING:
    from headwater.config import Config

_WORDS = {
    "bool": "true or false",
    "int": "integer",
    "float": "number",
    "str": "text",
    "date": "date as 2017-12-31",
}
_SHOWN = 24  # characters of a default


def keys_option(config: str) -> Any:
    """Return the option `--keys` of a command whose `--set` fills the class `config`, given as "module:Class"."""

    def show(given: bool) -> None:
        if given:
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

    tables = tables_of(config)
    for key, field in config.model_fields.items():
        if key in tables:
            for name, shown, meaning in _rows(tables[key], f"{prefix}{key}."):
                yield name, "-" if key in config.tables else shown, meaning  # a preset has the defaults
            continue
        meaning = f"{_description(config, key)} ({_type(field.annotation)})"
        yield prefix + key, _default(field.get_default(call_default_factory=True)), meaning


def _description(config: type[Config], key: str) -> str:
    """Return the description of a key, which a subclass that changes the default inherits."""
    fields = (base.__dict__.get("__pydantic_fields__", {}).get(key) for base in config.__mro__)
    return next((field.description for field in fields if field is not None and field.description), "")


def _default(value: Any) -> str:
    if value is None or "Undefined" in type(value).__name__:
        return "-"
    text = value if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _type(annotation: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (list, tuple):
        return f"list of: {_type(arguments[0])}"
    if origin is dict:
        return "table"
    if origin is Union or type(annotation).__name__ == "UnionType":
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    return _WORDS.get(annotation.__name__, annotation.__name__)
