"""Remove Wikipedia, so that data sets made from it stay unseen (GPT-2, section 2.1).

Hosts: Wikipedia in every language, and known mirrors. Marks: copies on other hosts name their origin, as the
licence requires.
"""

from __future__ import annotations

import re

from headwater.corpus.filters import Step
from headwater.corpus.folder import Document
from headwater.corpus.web.urls import host_of

HOSTS = ("wikipedia.org", "wikiwand.com", "wikimili.com", "wikizero.com", "alchetron.com", "everipedia.org")
NAMED_SO = re.compile(r"(^|[.-])(wikipedia|wikipediaorg|wiki-pedia)([.-]|$)")
MARKS = re.compile(
    r"From Wikipedia, the free encyclopedia"
    r"|Retrieved from \W{0,3}https?://\w+(?:\.m)?\.wikipedia\.org"
    r"|(?:article|page|content|text)s? (?:uses|is licensed|is based on|is from|from|incorporates)[^.\n]{0,80}"
    r"\bWikipedia\b"
    r"|Wikipedia® is a registered trademark",
    re.I,
)
# Marks count only near both ends: a text that quotes one in the middle is about Wikipedia, not from it.
_EDGE_CHARACTERS = 1500


class Wikipedia(Step):
    """Removes articles of Wikipedia and copies of them; rules: `host`, `mark`."""

    name = "wikipedia"

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        host = host_of(document.url).partition(":")[0].lower()
        if any(host == known or host.endswith(f".{known}") for known in HOSTS) or NAMED_SO.search(host):
            return "host"
        text = document.text
        edges = (
            (text[:_EDGE_CHARACTERS], text[-_EDGE_CHARACTERS:]) if len(text) > 2 * _EDGE_CHARACTERS else (text,)
        )
        return "mark" if any(has_mark(edge) for edge in edges) else document


def has_mark(text: str) -> bool:
    """Return whether a text contains one of MARKS; first search for a word, which is faster."""
    return "wikipedia" in text.lower() and MARKS.search(text) is not None
