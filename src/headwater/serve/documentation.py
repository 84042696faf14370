"""The pages of `docs/reading` as HTML, to which the page's panels link.

`setup.py` renders them when the package is built, next to this module; a checkout's are rendered when they are
read. A picture becomes part of its page. Links to other files become text, which a server does not have. A
heading's anchor is GitHub's.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

_BUILT, _SOURCE = Path(__file__).parent / "reading", Path(__file__).parents[3] / "docs" / "reading"
_COMMENT = re.compile(r"^<!-- .* -->\n", re.M)
_FOREIGN_LINK = re.compile(r"\[([^\]]+)\]\(\.\.[^)]*\)")  # to a file of another folder
_PICTURE = re.compile(r'(<img src="([\w.]+\.svg)" alt="([^"]*)" />)')
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
def files() -> dict[str, Path]:
    """Return the file of each page by its name, as `gpt1.md` and `gpt1.ko.md`."""
    paths = _BUILT.glob("*.html") if _BUILT.is_dir() else _SOURCE.glob("*.md")
    return {path.name.removesuffix(".html"): path for path in paths}


@cache
def page(name: str) -> str:
    """Return one of `files` as HTML."""
    path = files()[name]
    return path.read_text(encoding="utf-8") if path.suffix == ".html" else render(path)


def render(path: Path) -> str:
    """Return a page of Markdown, with the pictures next to it, as HTML."""
    from markdown_it import MarkdownIt

    text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(_FOREIGN_LINK.sub(r"\1", text))
    for token, following in pairwise(tokens):
        if token.type == "heading_open":  # GitHub's anchor
            plain = re.sub(r"[^\w\- ]", "", following.content.lower())
            token.attrSet("id", plain.replace(" ", "-"))
    body = reader.renderer.render(tokens, reader.options, {})
    for image, file, alternative in _PICTURE.findall(body):
        svg = (path.parent / file).read_text(encoding="utf-8")
        body = body.replace(image, svg.replace("<svg ", f'<svg role="img" aria-label="{alternative}" ', 1))
    for opened, scrolling in _SCROLLING.items():
        body = body.replace(opened, scrolling)
    title = text.partition("\n")[0].removeprefix("# ")
    language = "ko" if path.name.endswith(".ko.md") else "en"
    return _PAGE.format(language=language, title=escape(title), body=body)
