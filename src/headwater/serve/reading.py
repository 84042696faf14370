"""The pages of `docs/reading` as HTML: what the links of the page's panels lead to.

A wheel has a copy of the Markdown next to this module (`setup.py`); in a checkout the folder itself is read. Links
to other files become text, because a server does not have those files. A heading's anchor is GitHub's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.token import Token

_FOLDERS = (Path(__file__).parent / "reading", Path(__file__).parents[3] / "docs" / "reading")  # a wheel's, ours
_COMMENT = re.compile(r"^<!-- .* -->\n", re.M)
_TEXT = {"text", "code_inline"}
# What may be wider than a phone scrolls by itself, also with keys.
_SCROLLING = {
    "<pre>": '<pre tabindex="0">',
    "<table>": '<div class="scroll" tabindex="0"><table>',
    "</table>": "</table></div>",
}
_PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="../icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="../style.css">
<link rel="stylesheet" href="../reading.css">
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


@cache
def names() -> frozenset[str]:
    """Return the names of the pages, as `gpt1.md` and `gpt1.ko.md`."""
    return frozenset(path.name for path in _folder().glob("*.md"))


@cache
def page(name: str) -> str:
    """Return one of `names` as an HTML page."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(_COMMENT.sub("", (_folder() / name).read_text(encoding="utf-8")))
    title = name
    for token, following in pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(part.content for part in following.children or () if part.type in _TEXT)
            title = text if token.tag == "h1" else title
            token.attrSet("id", anchor(text))
        if token.children:
            token.children = list(_without_foreign_links(token.children))
    body = reader.renderer.render(tokens, reader.options, {})
    for opened, scrolling in _SCROLLING.items():
        body = body.replace(opened, scrolling)
    language = "ko" if name.endswith(".ko.md") else "en"
    return _PAGE.format(language=language, title=escape(title), body=body)


def anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _without_foreign_links(parts: Sequence[Token]) -> Iterator[Token]:
    """Yield the parts of a text; of a link to a file that is not one of `names`, only its text."""
    kept = True
    for part in parts:
        if part.type == "link_open":
            file = str(part.attrs["href"]).partition("#")[0]
            kept = not file or file in names()
        if kept or part.type not in {"link_open", "link_close"}:
            yield part


def _folder() -> Path:
    return next(folder for folder in _FOLDERS if folder.is_dir())
