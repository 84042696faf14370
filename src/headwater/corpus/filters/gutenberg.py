"""Remove Project Gutenberg's header and licence from a book."""

from __future__ import annotations

import re
from dataclasses import replace

from headwater.corpus.filters import Step
from headwater.corpus.folder import Document

# A title may take several lines, but the mark ends in its paragraph.
_START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG(?:.|\n(?!\n)){0,500}?\*\*\*.*\n", re.M)

_END = re.compile(r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG|End of (?:the )?Project Gutenberg)", re.M)

_PRODUCED_BY = re.compile(r"\A\s*(?:Produced by|E-text prepared by)[^\n]*(?:\n[^\n]+)*\n\n", re.I)


class Gutenberg(Step):
    """Removes Project Gutenberg's frame from a book; rule for a document without more: `only licence`."""

    name = "gutenberg"

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        text = without_gutenberg(document.text).strip("\n")
        if text == document.text:
            return document
        return replace(document, text=text) if text.strip() else "only licence"


def without_gutenberg(text: str) -> str:
    """Return the text between Project Gutenberg's marks; a text without them is returned unchanged."""
    start = _START.search(text)
    if start is None:
        return text
    text = text[start.end() :]
    end = _END.search(text)
    if end is not None:
        text = text[: end.start()]
    return _PRODUCED_BY.sub("", text.lstrip("\n") if text.strip() else "")
