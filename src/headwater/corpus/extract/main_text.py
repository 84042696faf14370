"""Extract the main text of a web page, without navigation, notices and lists of other pages.

Resiliparse finds the main content by the names and places of elements. Its result is checked and trimmed here. If
it has almost none of the page's prose, since it does not know the page's template, all visible text replaces it. A
repeated line is kept once. Everything before the first and after the last line of prose is removed: mostly titles,
dates, sharing buttons, captions and links. A line that marks a copy of Wikipedia is kept for the step that looks
for it.

A line is prose if it is long, or shorter and ends like a sentence. Lengths are in UTF-8 bytes, since scripts of
wide characters have shorter sentences.

| what | value | source |
|---|---|---|
| SENTENCE_BYTES | 40 | ours, like all here: chosen on the development pages of WCXB, an annotated set of 2026 |
| LONG_BYTES | 80 | |
| LEAST_SHARE | 0.06 | minimum share of the page's prose for the main content to be used |
| ENOUGH_PROSE | 1,500 | characters of prose from which the main content is used without checking the share |
| SKIPPED | aside, button, footer, nav | elements that HTML defines as not part of the content |
"""

from __future__ import annotations

import re
from typing import Any

from headwater.corpus.filters.wikipedia import has_mark

SENTENCE_BYTES = 40
LONG_BYTES = 80
LEAST_SHARE = 0.06
ENOUGH_PROSE = 1500
SKIPPED = ["aside", "button", "footer", "nav"]
_SENTENCE_END = re.compile(r"""[.!?…:;。！？]["'”’»)\]]*$""")


def main_text(page: str) -> str:
    """Return the main text of a page's HTML; empty if it has no text."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree: Any = HTMLTree.parse(page)
    common: dict[str, Any] = {
        "preserve_formatting": True,
        "alt_texts": False,
        "list_bullets": False,
        "skip_elements": SKIPPED,
    }
    text = extract_plain_text(tree, main_content=True, comments=False, post_meta=False, **common)
    lines = [line.rstrip() for line in text.split("\n")]
    prose = _prose_characters(lines)
    if prose < ENOUGH_PROSE:
        text = extract_plain_text(tree, main_content=False, **common)
        everything = [line.rstrip() for line in text.split("\n")]
        if prose < LEAST_SHARE * _prose_characters(everything):
            lines = everything
    return "\n".join(_trimmed(_once(lines)))


def is_prose(line: str) -> bool:
    """Return whether a line reads like running text."""
    line = line.strip()
    size = len(line.encode("utf-8", "replace"))
    return size >= LONG_BYTES or (size >= SENTENCE_BYTES and _SENTENCE_END.search(line) is not None)


def _prose_characters(lines: list[str]) -> int:
    return sum(len(line) for line in lines if is_prose(line))


def _once(lines: list[str]) -> list[str]:
    """Return the lines without repetitions of long ones: captions and teasers are often repeated."""
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
    """Return the lines from the first line of prose to the last; all if there is none (a poem, a list)."""
    kept = [number for number, line in enumerate(lines) if is_prose(line) or has_mark(f"{line}\n")]
    return lines[kept[0] : kept[-1] + 1] if kept else lines
