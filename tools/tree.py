"""The tree in the README: every module of the package with the first phrase of its docstring.

python tools/tree.py --check README.md …    fails when a README shows another tree than the real one
python tools/tree.py --write README.md …    puts the real one in
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

START, END = "<!-- tree -->", "<!-- /tree -->"
LONGEST, SHORTEST = 84, 24  # characters of a phrase
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headwater"


def phrase(path: Path) -> str:
    """The first line of a module's docstring up to its first full stop; of a long one, its first clause."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = docstring.split("\n")[0].split(". ")[0].rstrip(".")
    for border in (": ", "; ", ", "):
        head, _, _ = text.partition(border)
        if len(text) > LONGEST and len(head) > SHORTEST:
            text = head
    return text.rstrip(",:")


def tree() -> str:
    """The package as a block of Markdown."""
    lines = [f"src/headwater/{'':18} {phrase(PACKAGE / '__init__.py')}"]
    for path in sorted(PACKAGE.glob("*.py")):
        if not path.name.startswith("__"):
            lines.append(f"  {path.name:30} {phrase(path)}")
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}):
        indent = "  " * len(folder.relative_to(PACKAGE).parts)
        lines.append(f"{indent}{folder.name + '/':{32 - len(indent)}} {phrase(folder / '__init__.py')}")
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("__"):
                lines.append(f"{indent}  {path.name:{30 - len(indent)}} {phrase(path)}")
    return "```\n" + "\n".join(line.rstrip() for line in lines) + "\n```"


def main() -> int:
    """Check or write the files named on the command line."""
    mode, names = sys.argv[1], sys.argv[2:]
    missing = [path for path in PACKAGE.rglob("*.py") if not phrase(path)]
    if missing:
        print(f"no docstring in: {', '.join(map(str, missing))}")
        return 1
    status = 0
    for name in names:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        _, _, after = rest.partition(END)
        expected = f"{before}{START}\n{tree()}\n{END}{after}"
        if mode == "--write":
            path.write_text(expected, encoding="utf-8")
        elif text != expected:
            print(f"{name}: its tree is not the real one: make format")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
