"""The language of what the command line says: English, or Korean from `locale/ko.toml`.

English is the source: a message is written in English where it is raised, and translated where it is printed.
The catalogue has one line a message, with `{}` for each value. A message that it lacks is printed in English, and
names of options, keys and columns stay as they are. The entry point of the command line chooses the language;
nothing in the library does.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from unicodedata import east_asian_width

LANGUAGES = ("en", "ko")
_CATALOGUES = Path(__file__).parent / "locale"
_QUOTATION = re.compile(r"'[^']*'|\"[^\"]*\"")
_PATH = re.compile(r"[/\\]")
# Tags of a page's own text.
_QUOTED = re.compile(r'<(?:code|style)|<\w+ class="(?:prompt|t t\d|quoted|name)"')
_VALUES = re.compile(r"\{n?\}")
_CELL = re.compile(r"\S+(?: \S+)*")  # of a row of a table: two spaces or more are between cells
_ALTERNATIVES = re.compile(r"[^\s,]+(?:, [^\s,]+)*(?: (?:or|and) \S+)+")
_VALUE = re.compile(r"\\\{(n?)\\\}")  # as re.escape writes {} and {n}


class Catalogue:
    """The translations of one language, by their English text."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = entries
        # The pattern with most text of its own first: "{} has no {}" also fits longer messages.
        patterns = sorted((one for one in entries if "{" in one), key=lambda one: -len(_VALUES.sub("", one)))
        compiled = [(re.compile(self._pattern(one), re.S), one) for one in patterns]
        self._patterns = [(pattern, entries[one]) for pattern, one in compiled if not one.startswith("{")]
        self._open_patterns = [(pattern, entries[one]) for pattern, one in compiled if one.startswith("{")]

    @staticmethod
    def _pattern(english: str) -> str:
        return _VALUE.sub(
            lambda value: r"([-+]?\d[\d.,]*(?:e[-+]?\d+)?)" if value[1] else "(.*?)", re.escape(english)
        )

    def result(self, text: str) -> str:
        """Return a command's result in this language. A word by itself is a name, and cells keep their columns.

        The first cell of a table's row is an entry that ends in two spaces, a single word of a later one an entry
        that begins with them.
        """
        lines, rows = text.split("\n"), dict[int, list[tuple[int, int, str]]]()
        for number, line in enumerate(lines):
            body = line.strip()
            cells = [(cell.start(), cell.end(), cell[0]) for cell in _CELL.finditer(line)]
            if len(cells) > 1 and body not in self._entries:
                rows[number] = cells
            elif " " in body:
                lines[number] = line[: len(line) - len(line.lstrip())] + self.translate(body)
        said = {number: [self._of_cell(cell[2], at) for at, cell in enumerate(rows[number])] for number in rows}
        # A first cell that is wider in this language moves the others of every row.
        wider = [row[0][0] + columns(said[number][0]) + 2 - row[1][0] for number, row in rows.items()]
        for number, row in rows.items():
            line = ""
            for at, (start, end, cell) in enumerate(row):
                place = start + (max(0, *wider) if at else 0)
                if at and cell[0].isdigit() and at < len(row) - 1:  # numbers are flush right
                    place += end - start - columns(said[number][at])
                if at > 1 and start == row[at - 1][1] + 2:  # it follows without a column of its own
                    place = 0
                line += " " * max(2 if at else 0, place - columns(line)) + said[number][at]
            lines[number] = line
        return "\n".join(lines)

    def _of_cell(self, cell: str, at: int) -> str:
        entry = self._entries.get(f"  {cell}" if at else f"{cell}  ")
        return self._of_part(cell, words_stay=True) if entry is None else entry

    def translate(self, text: str, *, words_stay: bool = False) -> str:
        """Return the text in this language: a whole message, or the parts of one that are known.

        words_stay: a value of one word is a name, as that of the folder `report`, and stays as it is.
        """
        if text in self._entries:
            return self._entries[text]
        if text.endswith(" …"):
            return f"{self.translate(text[:-2])} …"
        stage, colon, rest = text.partition(": ")
        for patterns in (self._patterns, self._open_patterns):
            for pattern, translation in patterns:
                if matched := pattern.fullmatch(text):
                    values = [self._of_value(value, words_stay) for value in matched.groups()]
                    return _SLOT.sub(_Filler(values), translation)
            if colon and stage in self._entries:
                return f"{self._entries[stage]}: {self.translate(rest, words_stay=words_stay)}"
        return self._of_parts(text, words_stay)

    def _of_value(self, value: str, words_stay: bool) -> str:
        """Return a value in this language: a path and a quotation stay as they are."""
        unquoted = _QUOTATION.sub("", value)
        is_path = _PATH.search(unquoted) and not _ALTERNATIVES.fullmatch(unquoted)
        is_name = is_path or not re.search("[A-Za-z]", unquoted)
        return value if is_name or (words_stay and ". " in value) else self._of_part(value, words_stay)

    def _of_part(self, part: str, words_stay: bool) -> str:
        return part if words_stay and " " not in part else self.translate(part, words_stay=words_stay)

    def _of_parts(self, text: str, words_stay: bool) -> str:
        """Translate `name: summary (duration)`, alternatives, and the parts of a list with commas."""
        if matched := re.fullmatch(r"(.+) \(([^()]+)\)", text, re.S):
            whole, aside = (self.translate(part, words_stay=words_stay) for part in matched.groups())
            return f"{whole} ({aside})"
        if _ALTERNATIVES.fullmatch(text):
            return re.sub(" (or|and) ", lambda word: f" {self._entries.get(word[1], word[1])} ", text)
        name, colon, rest = text.rpartition(": ")
        if colon and (translation := self.translate(rest, words_stay=words_stay)) != rest:
            return f"{self.translate(name, words_stay=words_stay)}: {translation}"
        if ", " in text:
            return ", ".join(self._of_part(part, words_stay=True) for part in text.split(", "))
        return text


def final_consonant(word: str) -> str | None:
    """Return the final consonant of a word as Korean reads it: `ㄹ`, `other`, or none as ``; None if unknown.

    The last letter decides, without brackets behind the word. Digits and capitals are read by their names, words
    in Latin letters roughly as they are written in Hangul: `model` 모델, `token` 토큰, `steps` 스텝스.
    """
    word = re.sub(r"(?<=[^\W_])\s*\([^()]*\)\W*$", "", word).rstrip("'\"`’”)]}>.,:;…*_/\\- ")
    if "가" <= word[-1:] <= "힣":
        jongseong = (ord(word[-1]) - ord("가")) % 28
        return "ㄹ" if jongseong == 8 else "other" if jongseong else ""
    return next((final for pattern, final in _ENDS if re.search(pattern, word)), None)


# How a word that is not in Hangul ends, and the final consonant that it is read with; the first that fits.
_ENDS = (
    (r"[178lL]$|le$|R$|(?<![A-Za-z])r$", "ㄹ"),
    (r"[036mnMN]$|[a-z](ng|[mn]e|ck)$|[aeiou]c$|(?<![aeiou])[aeiou]p$|(out|put|set|mat|get)$", "other"),
    (r"[aeiou][bkpt]$|[aeiouy][pk]e$", None),  # 웹 but 튜브, 셋 but 루트
    (r"[2459A-Za-z%]$", ""),
)
_PARTICLES = {  # after a final consonant, and without one
    "이(가)": ("이", "가"),
    "은(는)": ("은", "는"),
    "을(를)": ("을", "를"),
    "와(과)": ("과", "와"),
    "(으)로": ("으로", "로"),
    "(이)라": ("이라", "라"),
}
_SLOT = re.compile(rf"\{{(\d*)n?\}}([\"')]*)({'|'.join(map(re.escape, _PARTICLES))})?")


class _Filler:
    """Replace `{}` by the values in their order, and `{2}` by the second; choose the particle behind a value."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values, self._next = values, iter(values)

    def __call__(self, match: re.Match[str]) -> str:
        value = self._values[int(match[1]) - 1] if match[1] else next(self._next)
        particle = match[3] or ""
        final = final_consonant(value) if particle else None
        if final is not None:
            particle = _PARTICLES[particle][final == "" or (final == "ㄹ" and particle == "(으)로")]
        return value + match[2] + particle


_chosen: Catalogue | None = None


def use_language(name: str) -> None:
    """Translate what the command line prints into this language from now on; `name` is one of LANGUAGES."""
    global _chosen
    _chosen = None if name == "en" else catalogue(name)


def catalogue(name: str) -> Catalogue:
    """Read the catalogue of a language."""
    import tomllib

    return Catalogue(tomllib.loads((_CATALOGUES / f"{name}.toml").read_text(encoding="utf-8")))


def language_of_locale(environment: Mapping[str, str]) -> str:
    """Return the language that the locale variables of a process ask for: ko, else en."""
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environment.get(variable):
            return "ko" if value.partition("_")[0] == "ko" else "en"
    return "en"


def translated_error(text: str) -> str:
    """Return a part of an error in the chosen language; names in it stay as they are."""
    return text if _chosen is None else _chosen.translate(text, words_stay=True)


def translated(text: str) -> str:
    """Return a message in the chosen language, its indentation kept."""
    if _chosen is None:
        return text
    lines = text.split("\n")
    return "\n".join(line[: len(line) - len(line.lstrip())] + _chosen.translate(line.strip()) for line in lines)


def translated_result(text: str) -> str:
    """Return what a command prints as its result in the chosen language."""
    return text if _chosen is None else _chosen.result(text)


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: Hangul takes two a letter."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def translated_help(text: str) -> str:
    """Return the help of a command or an option in the chosen language, paragraph by paragraph."""
    if _chosen is None:
        return text
    return "\n\n".join(_chosen.translate(" ".join(paragraph.split())) for paragraph in text.split("\n\n"))


def translated_page(page: str) -> str:
    """Return an HTML page in the chosen language: its text and labels; commands and quoted text stay."""
    if (chosen := _chosen) is None:
        return page

    def in_language(found: re.Match[str]) -> str:
        text = " ".join(html.unescape(found[2]).split())
        translation = text if _QUOTED.match(found[1]) else chosen.translate(text)
        return found[0] if translation == text else found[1] + escape(translation)

    head, body, rest = page.partition("<body>")
    rest = re.sub(r"(<[^<>]+>\s*)([^<>\s][^<>]*?)(?=\s*<)", in_language, rest)
    rest = re.sub(r'(aria-label=")([^"]+)', in_language, rest)
    return head.replace('lang="en"', 'lang="ko"') + body + rest
