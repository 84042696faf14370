"""Make text of a raw page.

Resiliparse and `main_text`, or trafilatura on request, extract the main content of HTML (GPT-2, section 2.1, used
Dragnet and Newspaper, which are no longer maintained). `charset` decodes the bytes, `wiki_text` reads wiki markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from headwater.corpus.extract.charset import Decoded, decode_page
from headwater.corpus.extract.wiki_text import FILES, wiki_text
from headwater.corpus.sources.pages import CHAPTER, Page
from headwater.errors import require_extra

ExtractorName = Literal["resiliparse", "trafilatura"]

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))


class Extracted(NamedTuple):
    """The text of a page, or the reason why it has none.

    encoding: as "cp949" or "cp949 (declared utf-8)", empty for a book; left_out: what of the page the text does
    not have, with its number.
    """

    text: str = ""
    reason: str = ""
    encoding: str = ""
    left_out: Mapping[str, int] = {}


def extract_page(page: Page, name: str = "resiliparse") -> str:
    """Return the text of a page, extracted in this process; empty if it has none.

    Raises DataError if the encoding of the page cannot be decided.
    """
    return extract(page, name).text


def extract(page: Page, name: str) -> Extracted:
    """Return the text of a page; raises UndecidedError."""
    if page.kind == "book":
        chapters = (decode_page(chapter, page.charset).text for chapter in page.data.split(CHAPTER))
        return Extracted(tidy("\n\n".join(_whole_text(chapter) for chapter in chapters)))
    decoded = decode_page(page.data, page.charset, is_html=page.kind == "html")
    encoding = _encoding_of(decoded)
    if page.kind == "html":
        return Extracted(tidy(load_extractor(name)(decoded.text)), encoding=encoding)
    if page.kind == "wikitext":
        text, left_out = wiki_text(decoded.text, page.namespaces or FILES)
        return Extracted(tidy(text), encoding=encoding, left_out=left_out)
    return Extracted(tidy(decoded.text), encoding=encoding)


def _encoding_of(decoded: Decoded) -> str:
    return decoded.encoding + (f" (declared {decoded.contradicts})" if decoded.contradicts else "")


def tidy(text: str) -> str:
    """Strip the ends of lines and of the text, and keep at most one blank line between two.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL are removed.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def load_extractor(name: str) -> Any:
    """Return the function from HTML to main text."""
    if name == "trafilatura":
        with require_extra("corpus", "extractor = trafilatura", " trafilatura"):
            import trafilatura

        return lambda page: trafilatura.extract(page, include_comments=False) or ""
    with require_extra("corpus", "extracting the text of pages"):
        import resiliparse.extract.html2text  # noqa: F401
    from headwater.corpus.extract.main_text import main_text

    return main_text


def _whole_text(chapter: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(chapter, preserve_formatting=True, alt_texts=False, list_bullets=False)
    return text
