"""The code in the documentation: every block is a file of `examples/`, put in where a comment names it.

python tools/examples.py --check    fails when a page shows other code than the file, or code that is no file
python tools/examples.py --write    puts the files in

A page says `<!-- examples/NAME -->`; the block behind it is the file. A block of plain output has
`<!-- output -->` before it and the language `text`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- (examples/\S+) -->\n(?:```\w*\n.*?^```\n)?", re.M | re.S)
OUTPUT, TREE = "<!-- output -->", "<!-- tree -->"
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".slurm": "sh", ".patch": "diff"}


def pages() -> list[Path]:
    """Every page that may show code; what experiments found is written by them."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", ROOT / "README.ko.md", *(p for p in found if "results" not in p.parts)]


def filled(text: str) -> str:
    """The page with the files as they are."""

    def block(match: re.Match[str]) -> str:
        path = ROOT / match[1]
        code = path.read_text(encoding="utf-8")
        return f"<!-- {match[1]} -->\n```{LANGUAGES[path.suffix]}\n{code}```\n"

    return MARK.sub(block, text)


def shown(text: str) -> list[str]:
    """The examples that a page shows, by name."""
    return [match[1] for match in MARK.finditer(text)]


def strangers(text: str) -> Iterator[int]:
    """The lines of code blocks that are neither examples nor marked as output."""
    lines = text.splitlines()
    for token in MarkdownIt().parse(text):
        if token.type not in {"fence", "code_block"} or token.map is None:
            continue
        start = token.map[0]
        before = lines[start - 1] if start else ""
        named = before.startswith("<!-- examples/") or before == TREE
        if token.type == "code_block" or not (named or (before == OUTPUT and token.info == "text")):
            yield start + 1


def main() -> int:
    """Check or write every page."""
    status = 0
    for path in pages():
        text = path.read_text(encoding="utf-8")
        expected = filled(text)
        if sys.argv[1] == "--write":
            path.write_text(expected, encoding="utf-8")
        elif text != expected:
            print(f"{path.relative_to(ROOT)}: shows other code than examples/: make format")
            status = 1
        for line in strangers(expected):
            print(f"{path.relative_to(ROOT)} line {line}: code that is no file of examples/")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
