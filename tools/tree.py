"""List every module of the package with the first sentence of its docstring, in docs/architecture.md.

python tools/tree.py --check    fail if the page lists other modules or other sentences than the source has
python tools/tree.py --write    write the list into the page
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

START, END = "<!-- tree -->", "<!-- /tree -->"
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headwater"
PAGE = ROOT / "docs" / "architecture.md"
# A full stop ends a sentence unless it belongs to an abbreviation.
_SENTENCE_END = re.compile(r"(?<!et al)(?<!e\.g)(?<!i\.e)\.(?:\s|$)")


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph)[0].rstrip(":.").replace("|", "\\|")


def tree() -> str:
    """Return the list as Markdown: a section for each package, a table row for each module."""
    lines = []
    for folder in [PACKAGE, *sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE})]:
        name = "headwater/" + "".join(f"{part}/" for part in folder.relative_to(PACKAGE).parts)
        lines += [
            "",
            f"### {name}",
            "",
            f"{summary(folder / '__init__.py')}.",
            "",
            "| module | what it does |",
            "|---|---|",
        ]
        modules = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("__")]
        lines += [f"| `{path.name}` | {summary(path)} |" for path in modules]
        if not modules:
            lines = lines[:-3]
    return "\n".join(lines[1:])


def main() -> int:
    """Check or write the page."""
    missing = [str(path) for path in PACKAGE.rglob("*.py") if not summary(path)]
    if missing:
        print(f"no docstring in: {', '.join(missing)}")
        return 1
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    expected = f"{before}{START}\n\n{tree()}\n\n{END}{after}"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(expected, encoding="utf-8")
    elif text != expected:
        print(f"{PAGE.relative_to(ROOT)}: the list of modules is out of date: run make format")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
