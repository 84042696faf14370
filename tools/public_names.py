"""The page of the public names of every package, each with its first sentence. `tools/pages.py` writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headwater"
PAPERS = ROOT / "papers" / "src" / "headwater_papers"
INTRO = """# Public names

A package is used only through `from headwater.PACKAGE import NAME`; its modules may change. This page lists every
such name with the first sentence of its description.
`tests/test_architecture.py` fails if other code imports anything else.
"""
# A full stop ends a sentence unless it belongs to an abbreviation.
_SENTENCE_END = re.compile(r"(?<!et al)(?<!e\.g)(?<!i\.e)\.(?:\s|$)")


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a docstring, on one line, without its full stop."""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph)[0].rstrip(":.").replace("|", "\\|")


def summary(path: Path) -> str:
    """Return the first sentence of a module."""
    return first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))


def description(path: Path, name: str) -> str:
    """Return the first sentence about a name of a module: of its docstring, or of the comment at a constant."""
    text = path.read_text(encoding="utf-8")
    body, lines = ast.parse(text).body, text.splitlines()
    body += [inner for node in body if isinstance(node, ast.If) for inner in node.body]
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and ast.get_docstring(node):
            return first_sentence(ast.get_docstring(node))  # an overload has none
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in assigned(node):
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                return first_sentence(str(following.value.value))
            trailing = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
            first = node.lineno - 1
            while first and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            comment = trailing or " ".join(line.lstrip("# ") for line in lines[first : node.lineno - 1])
            return first_sentence(comment) or shown(node.value)
    return ""


def shown(value: ast.expr | None) -> str:
    """Return a value that explains itself: a constant, or a type."""
    explains = value is not None and isinstance(value, ast.Constant | ast.Subscript | ast.BinOp)
    return f"`{ast.unparse(value)}`".replace("|", "\\|") if value and explains else ""


def assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    """Return the names that a statement assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def public(folder: Path) -> dict[str, str]:
    """Return the public names of a package and the first sentence of each."""
    tree = ast.parse((folder / "__init__.pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: folder.joinpath(*(node.module or "").split("."))
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {}
    for name in sorted(homes, key=str.lower):
        home = homes[name]
        found[name] = description(home.with_suffix(".py") if not home.is_dir() else home / "__init__.py", name)
    return found


def packages() -> list[Path]:
    """Return the packages that have public names: Headwater, its packages, those of the papers."""
    inner = sorted(path.parent for path in PACKAGE.glob("*/__init__.pyi"))
    return [PACKAGE, *inner, *sorted(path.parent for path in PAPERS.rglob("__init__.pyi"))]


def page() -> str:
    """Return the page as Markdown."""
    parts = [INTRO]
    for folder in packages():
        name = ".".join(
            folder.relative_to(PAPERS.parent if PAPERS in [folder, *folder.parents] else PACKAGE.parent).parts
        )
        parts.append(f"## {name}\n\n{summary(folder / '__init__.py')}.\n\n| name | what it is |\n|---|---|")
        parts += [f"| `{one}` | {sentence} |" for one, sentence in public(folder).items()]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"
