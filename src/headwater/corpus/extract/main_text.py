"""The main text of a web page, without navigation, notices and lists of other pages.

Resiliparse decides by the names and places of elements what is main content. Here its answer is checked and
trimmed: where it kept almost nothing of the page's prose (it does not know the page's template), all visible text
is taken instead; a line that stands twice stays once; and what comes before the first line of prose or after the
last one goes, which is mostly titles, dates, sharing, captions and links to other pages. A line by which a copy of
Wikipedia is known stays, for the step that looks for it.

Prose is a line that is long, or of some length and ended like a sentence. Lengths are in UTF-8 bytes, so that a
sentence in a script of wide characters counts as one.

| what | value | source |
|---|---|---|
| SENTENCE_BYTES | 40 | ours, as all here: chosen on the development pages of WCXB, a marked set of 2026 |
| LONG_BYTES | 80 | |
| LEAST_SHARE | 0.06 | of the page's prose, below which the main content is not believed |
| BELIEVED | 1,500 | characters of prose, from which on it is believed without looking at the whole page |
| SKIPPED | aside, button, footer, nav | elements that HTML itself says are beside the content |
"""

from __future__ import annotations

import re
from typing import Any

from headwater.corpus.filters.wikipedia import has_mark

SENTENCE_BYTES = 40
LONG_BYTES = 80
LEAST_SHARE = 0.06
BELIEVED = 1500
SKIPPED = ["aside", "button", "footer", "nav"]
_SENTENCE_END = re.compile(r"""[.!?…:;。！？]["'”’»)\]]*$""")


def main_text(page: str) -> str:
    """The main text of a page's HTML; empty where it has no text."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree: Any = HTMLTree.parse(page)
    common: dict[str, Any] = {
        "preserve_formatting": True,
        "alt_texts": False,
        "list_bullets": False,
        "skip_elements": SKIPPED,
    }
    lines = _lines(extract_plain_text(tree, main_content=True, comments=False, post_meta=False, **common))
    prose = _prose_characters(lines)
    if prose < BELIEVED:
        everything = _lines(extract_plain_text(tree, main_content=False, **common))
        if prose < LEAST_SHARE * _prose_characters(everything):
            lines = everything
    return "\n".join(_trimmed(_once(lines)))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def is_prose(line: str) -> bool:
    """Whether a line reads like running text."""
    line = line.strip()
    size = len(line.encode("utf-8", "replace"))
    return size >= LONG_BYTES or (size >= SENTENCE_BYTES and _SENTENCE_END.search(line) is not None)


def _prose_characters(lines: list[str]) -> int:
    return sum(len(line) for line in lines if is_prose(line))


def _once(lines: list[str]) -> list[str]:
    """The lines, of equal long ones only the first: captions and teasers are often there twice."""
    seen: set[str] = set()
    kept = []
    for line in lines:
        key = line.strip()
        if len(key) >= SENTENCE_BYTES:
            if key in seen:
                continue
            seen.add(key)
        kept.append(line)
    return kept


def _trimmed(lines: list[str]) -> list[str]:
    """From the first line of prose to the last; all, where there is none (a poem, a list)."""
    first = next((number for number, line in enumerate(lines) if _stays(line)), None)
    if first is None:
        return lines
    last = next(number for number in range(len(lines) - 1, -1, -1) if _stays(lines[number]))
    return lines[first : last + 1]


def _stays(line: str) -> bool:
    return is_prose(line) or has_mark(f"{line}\n")
