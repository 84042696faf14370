"""The text of MediaWiki's templates that stand inside sentences, for the markup of a dump.

A dump has calls of templates, not what they show. Those that show one of their arguments, a number with its unit
or a date are shown here as on the page, in English or Korean; notes and marks that show nothing to read are
dropped; `wiki_templates.toml` names them. `None` means that a template is not known: its sentence cannot be
completed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Shown = Callable[[Sequence[str], Mapping[str, str]], str]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_LONG_NUMBER = re.compile(r"(?<![\d.,])\d{4,}(?![\d,])")
_NUMBER = re.compile(r"[-+−±]?[\d.,/+ ]*\d(?:e\d+)?$")
_RANGES = {
    **{"-": "–", "–": "–", "to": " to ", "to(-)": " to ", "and": " and ", "or": " or ", "x": " × ", "×": " × "},
    **{"by": " by ", "+/-": " ± ", "±": " ± "},
}
_UNITS = {"sqmi": "sq mi", "sqft": "sq ft", "C": "°C", "F": "°F", "kph": "km/h"}
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SILENT = re.compile(rf"(?:{'|'.join(map(re.escape, _TABLES['silent']['names']))})(?:[ :-].*)?$", re.DOTALL)


def shown(name: str, arguments: Sequence[str], named: Mapping[str, str]) -> str | None:
    """Return what a template shows; None if it is not known. `name` is in lower case."""
    if (sign := _TABLES["signs"].get(name)) is not None:
        return str(sign)
    if (sign := _TABLES["money"].get(name)) is not None:
        return f"{sign}{grouped(_at(arguments, 0))}"
    if name.startswith("lang-"):
        return _at(arguments, 0)
    if show := _SHOWN.get(name):
        return show(arguments, named)
    return "" if _SILENT.match(name) else None


def _at(arguments: Sequence[str], index: int) -> str:
    return arguments[index] if len(arguments) > index else ""


def grouped(text: str) -> str:
    """Return the text with commas in its numbers of four and more digits."""
    return _LONG_NUMBER.sub(lambda number: f"{int(number[0]):,}" if number[0][0] != "0" else number[0], text)


def _converted(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    """Return the quantity that `convert` is given: a number or a range, with its first unit; `5|ft|6|in` too."""
    text, unit = "", ""
    for argument in arguments:
        if argument in _RANGES and not unit:
            text += _RANGES[argument]
        elif _NUMBER.match(argument):
            text += f" {unit} {grouped(argument)}" if unit else grouped(argument)
            unit = ""
        elif not unit and text:
            unit = _UNITS.get(argument, argument)
        else:
            break
    return f"{text} {unit}".strip()


def _value(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    number = grouped(_at(arguments, 0))
    number += f" ± {arguments[1]}" if len(arguments) > 1 else ""
    number += f"×10^{named['e']}" if "e" in named else ""
    unit = named.get("u") or named.get("ul") or ""
    return f"{named.get('p', '')}{number} {unit}{named.get('s', '')}".strip()


def _fraction(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    if len(arguments) > 2:
        return f"{arguments[0]} {arguments[1]}/{arguments[2]}"
    return "/".join(arguments) if len(arguments) == 2 else f"1/{_at(arguments, 0)}"


def _date(arguments: Sequence[str], named: Mapping[str, str], *, korean: bool = False) -> str:
    numbers = [int(argument) for argument in arguments[:3] if argument.isascii() and argument.isdigit()]
    if not numbers:
        return _at(arguments, 0)
    if korean:
        return " ".join(f"{number}{sign}" for number, sign in zip(numbers, "년월일", strict=False))
    year, *rest = numbers
    if not rest or not 1 <= rest[0] <= 12:
        return str(year)
    month, day = _MONTHS[rest[0] - 1], rest[1] if len(rest) > 1 else 0
    if named.get("df", "").lower() in {"y", "yes"}:
        return f"{day} {month} {year}" if day else f"{month} {year}"
    return f"{month} {day}, {year}" if day else f"{month} {year}"


def _as_of(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    return f"{'as' if 'lc' in named else 'As'} of {_date(arguments, {**named, 'df': 'y'})}"


def _korean_date(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    return _date(arguments, named, korean=True)


_BY_KIND: dict[str, Shown] = {
    "first": lambda arguments, named: _at(arguments, 0) or named.get("text", ""),
    "second": lambda arguments, named: _at(arguments, 1) or _at(arguments, 0) or named.get("text", ""),
    "joined": lambda arguments, named: "".join(arguments),
    "quantity": _converted,
    "number": lambda arguments, named: grouped("".join(arguments)),
    "value": _value,
    "fraction": _fraction,
    "circa": lambda arguments, named: "c. " + " – ".join(arguments),
    "as_of": _as_of,
    "date": _date,
    "korean_date": _korean_date,
}
_SHOWN = {name: _BY_KIND[kind] for kind, names in _TABLES["arguments"].items() for name in names}
