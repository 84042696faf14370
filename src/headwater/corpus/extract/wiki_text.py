"""Make prose of wiki markup, and count what is left out of it.

Link texts and the text of inline templates stay. A dump has calls of templates, not what they show: those that
show one of their arguments, a number with its unit or a date are shown as on the page, in English or Korean; notes
and marks that show nothing to read are dropped. `wiki_text.toml` names them. A sentence with another template is
dropped whole, since words would be missing in it. Tables, footnotes, galleries, boxes, files, categories, and
sections without prose (See also, 각주) are left out.

Written here, since mwparserfromhell finds a template but does not know its text, and whole templates are all that
it would find for us.
"""

from __future__ import annotations

import html
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

FILES = ("file", "image", "category", "datei", "fichier", "archivo", "파일", "그림", "분류", "ファイル")
_NO_PROSE = (
    r"See also|References|External links|Further reading|Notes"
    r"|같이 보기|각주|외부 ?링크|바깥 고리|참고 ?문헌|참고 자료|주석|출처|관련 항목|더 읽을거리|함께 보기"
)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_SECTION = re.compile(  # to the next heading of the same or a higher level
    rf"^(=+)\s*(?:{_NO_PROSE})\s*=+[ \t]*$.*?(?=^(?!\1=)=[^\n]*=[ \t]*$|\Z)", re.S | re.M
)
_LEFT_OUT = (
    ("footnotes", re.compile(r"<ref\b[^>]*/>|<ref\b[^>]*>.*?</ref\s*>", re.S)),
    ("galleries and code", re.compile(r"<(gallery|timeline|syntaxhighlight|source|score)\b[^>]*>.*?</\1>", re.S)),
)
_RULES = [
    (re.compile(pattern, flags), replacement)
    for pattern, flags, replacement in (
        (r"<br\b[^<>]*>", re.I, "\n"),
        (r"</?[A-Za-z][^<>]*>", 0, ""),
        (r"^(=+)\s*(.+?)\s*\1\s*$", re.M, r"\n\2\n"),
        (r"\[https?://\S+ ([^\]]+)\]", 0, r"\1"),
        (r"\[https?://\S+\]|__[A-Z]+__", 0, ""),
        (r"'{2,}", 0, ""),
        (r"^[*#:;]+\s*", re.M, ""),
        (r" ?\((?:[\s,;:]|or|및|또는)*\)", 0, ""),  # what it had were templates that show nothing
    )
]
_LINK = re.compile(r"\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]")
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_TABLE = re.compile(r"\{\|[^{}]*?\|\}", re.S)
_NAMED = re.compile(r"\s*([\w -]+?)\s*=(.*)", re.S)
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*$")  # as a prefix: a link to another language's article
_DEPTH = 20  # of templates inside templates
_UNKNOWN = "\x02"  # in place of a template whose text is not known
_BOX = "\x03"  # in place of one that stands for itself
_OF_NOTES = {"date", "reason"}  # the arguments of notes to editors
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")


def wiki_text(markup: str, files: Sequence[str] = FILES) -> tuple[str, Counter[str]]:
    """Return the prose of an article and the numbers of what it does not have.

    files: the names, in lower case, of the name spaces of files and categories, whose links show no text.
    """
    left_out: Counter[str] = Counter()
    text = _COMMENT.sub("", markup.replace(_UNKNOWN, "").replace(_BOX, ""))
    text, left_out["sections without prose"] = _SECTION.subn("", text)
    for what, pattern in _LEFT_OUT:
        text, left_out[what] = pattern.subn("", text)
    for _ in range(_DEPTH):
        text, count = _LINK.subn(lambda link: _link_text(link, files), text)
        if not count:
            break
    for _ in range(_DEPTH):
        text, templates = _TEMPLATE.subn(_template_text, text)
        text, tables = _TABLE.subn("", text)
        left_out["tables"] += tables
        if not templates + tables:
            break
    left_out["boxes"] = text.count(_BOX)
    text = text.replace(_BOX, "")
    if _UNKNOWN in text:
        lines = [_complete_sentences(line, left_out) for line in text.split("\n")]
        text = "\n".join(line for line in lines if line is not None)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return html.unescape(text), +left_out


def _template_text(call: re.Match[str]) -> str:
    """Return the text of a template without others inside it."""
    name, *parts = call[1].split("|")
    name = name.strip().replace("_", " ").lower()
    arguments: list[str] = []
    named: dict[str, str] = {}
    if ":" in name and name.partition(":")[0] in {"formatnum", "lc", "uc", "lcfirst", "ucfirst"}:
        name, _, first = call[1].partition("|")[0].strip().partition(":")
        return grouped(first.strip()) if name.lower() == "formatnum" else first
    for part in parts:
        if match := _NAMED.match(part):
            if match[1].isdecimal():
                arguments.append(match[2].strip())
            else:
                named[match[1].lower()] = match[2].strip()
        else:
            arguments.append(part.strip())
    if any(_UNKNOWN in argument for argument in arguments):
        return _UNKNOWN
    text = shown(name, arguments, named)
    if text is not None:
        return text
    # A box has several lines, or begins a line with names for all its arguments. Others may show text.
    at_start = call.start() == 0 or call.string[call.start() - 1] == "\n"
    is_note = bool(named) and named.keys() <= _OF_NOTES  # as {{when|date=May 2020}}
    is_box = "\n" in call[1] or (not arguments and (at_start or is_note))
    return _BOX if is_box else _UNKNOWN


def _complete_sentences(line: str, left_out: Counter[str]) -> str | None:
    """Return a line without the sentences that have an unknown template; None for one that is nothing else."""
    if _UNKNOWN not in line:
        return line
    if not line.replace(_UNKNOWN, "").strip(" *#:;.,"):
        left_out["templates that are not known"] += line.count(_UNKNOWN)
        return None
    sentences = _SENTENCE_END.split(line)
    kept = [sentence for sentence in sentences if _UNKNOWN not in sentence]
    left_out["sentences with a template that is not known"] += len(sentences) - len(kept)
    return " ".join(kept) or None


def _link_text(link: re.Match[str], files: Sequence[str]) -> str:
    target, text = link[1], link[2]
    space, colon, _ = target.partition(":")
    space = space.strip()
    if colon and space.lower() in files:
        return ""
    if colon and text is None and _LANGUAGE.match(space):
        return ""  # the same article in another language
    return (text.rpartition("|")[2] if text else target.removeprefix(":")).strip()


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
    "korean_date": partial(_date, korean=True),
}
_SHOWN = {name: _BY_KIND[kind] for kind, names in _TABLES["arguments"].items() for name in names}
