"""The text of MediaWiki's templates that stand inside sentences, for the markup of a dump.

A dump has calls of templates, not what they show. Those that show one of their arguments, a number with its unit
or a date are shown here as on the page, in English or Korean; notes and marks that show nothing to read are
dropped. `None` means that a template is not known: its sentence cannot be completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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
_SIGNS = {
    **{"ndash": "–", "mdash": "—", "spaced ndash": " – ", "snd": " – ", "nbsp": " ", "!": "|", "=": "=", "'": "'"},
    **{"·": " · ", "•": " • ", "spaces": " ", "thin space": " ", "zwsp": "", "shy": "", "wbr": ""},
}
# The first word of templates that show nothing to read, or only a mark, a footnote or a reference.
_SILENT = re.compile(
    r"""
    (?: cite | citation | harvnb? | harv | sfnp? | efn | refn? | rp? | ref\ label | note\ label | notetag | cn
      | fact | clarify | when | who | whom | which | where | why | by\ whom | according\ to\ whom | dubious
      | discuss
      | update\ inline | page\ needed | better\ source | vague | (?:visible\ )?anchor | vanchor | flagicon
      | flagdeco | coord | audio | ipac? | pron | respell | wikidata | dead\ link | webarchive | sic
      | failed\ verification
      | full | nonspecific | original\ research | primary\ source | self-published | unreliable | verify
      | main | main\ article | further | see\ also | see | about | for | redirect | distinguish | hatnote
      | other\ uses | details | clear | toc | portal | commons | wikiquote | wikisource | reflist | notelist
      | short\ description
      | use\ \w+ | efn-la | needs\ ipa | listen
      | 본문 | 다른\ 뜻 | 넘어옴 | 구별 | 출처 | 각주 | 국기그림 | 좌표 | 위키공용 | 인용 | 주석 | 참고
      | 사실\ 확인 | 누가 | 언제 | 어디 | (?:웹|서적|뉴스|저널)\ 인용 )
    (?: [ -].* | :.* | )$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FIRST = (
    *(
        "nowrap",
        "nobr",
        "nobreak",
        "nobold",
        "small",
        "smaller",
        "big",
        "larger",
        "em",
        "strong",
        "strike",
        "tooltip",
    ),
    *("abbr", "ill", "interlanguage link", "link-interwiki", "sub", "sup", "mvar", "var", "math", "code", "mono"),
    *(
        "not a typo",
        "as written",
        "proper name",
        "sc",
        "smallcaps",
        "uc",
        "lc",
        "lcfirst",
        "ucfirst",
        "nihongo foot",
    ),
    *("quote", "blockquote", "cquote", "poemquote", "quotation", "flag", "flagcountry", "flagu", "bold", "italic"),
    *("underline", "highlight", "wikt-lang", "hangul", "nihongo", "zh", "overline", "chem2", "url", "작은 글씨"),
    *("국기", "국기나라", "국기국", "큰 글씨", "굵게", "밑줄", "인용문", "언어링크", "임시링크", "한자"),
)
_LAST = ("lang", "transl", "transliteration", "llang", "script", "rtl-lang", "langx", "color", "font color", "색")
_JOINED = ("chem", "ce", "angbr", "linktext")
_DATES = (
    *(
        "start date",
        "end date",
        "birth date",
        "birth date and age",
        "death date",
        "death date and age",
        "start-date",
    ),
    *("start date and age", "film date", "dts", "date", "출생일", "출생일과 만나이", "사망일", "사망일과 만나이"),
    *("시작일", "종료일", "날짜"),
)
_KOREAN = re.compile("[가-힣]")


def shown(name: str, arguments: Sequence[str], named: Mapping[str, str]) -> str | None:
    """Return what a template shows; None if it is not known. `name` is in lower case."""
    if name in _SIGNS:
        return _SIGNS[name]
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


def _circa(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    return "c. " + " – ".join(arguments)


def _money(sign: str) -> Shown:
    return lambda arguments, named: sign + grouped(_at(arguments, 0))


def _dates(name: str) -> Shown:
    return lambda arguments, named: _date(arguments, named, korean=_KOREAN.search(name) is not None)


_SHOWN: dict[str, Shown] = {
    **dict.fromkeys(_FIRST, lambda arguments, named: _at(arguments, 0) or named.get("text", "")),
    **dict.fromkeys(
        _LAST, lambda arguments, named: _at(arguments, 1) or _at(arguments, 0) or named.get("text", "")
    ),
    **dict.fromkeys(_JOINED, lambda arguments, named: "".join(arguments)),
    **dict.fromkeys(("convert", "cvt", "단위 변환"), _converted),
    **dict.fromkeys(("formatnum", "num", "nts", "gaps"), lambda arguments, named: grouped("".join(arguments))),
    **dict.fromkeys(("val", "value"), _value),
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
    **dict.fromkeys(("circa", "c.", "ca."), _circa),
    **{name: _dates(name) for name in _DATES},
    "as of": _as_of,
    **{
        name: _money(sign)
        for sign, names in {
            "US$": ("usd", "us$"),
            "£": ("gbp", "£", "pound sterling"),
            "€": ("eur", "€", "euro"),
            "₩": ("krw", "₩", "원"),
            "¥": ("jpy", "¥", "jp¥"),
            "A$": ("aud", "a$"),
            "C$": ("cad", "c$"),
            "₹": ("inr",),
        }.items()
        for name in names
    },
}
