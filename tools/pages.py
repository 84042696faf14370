"""Write the pages of the documentation for Sphinx: those of `docs/`, and those made from the code.

    python tools/pages.py FOLDER

The folder is replaced; `make docs` then builds build/site from it.

Each command has a page made from its help, and each public name one made from its docstrings. The lists of the
public names, of the papers' numbers, of the packages and of the protocols are made from the code: a comment
`<!-- made: NAME -->` in a page is replaced by its list. A comment
`<!-- source FILE OBJECT … -->` in a page, and the links to the lines of the code that `tools/examples.py` writes
after it, are replaced by the source of these objects. The results in `papers/results/` are listed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import architecture
import public_names

import evaluation
import headwater
from headwater.cli.main import LazyGroup

ROOT = Path(__file__).resolve().parent.parent
DOCS, PACKAGE = ROOT / "docs", ROOT / "src" / "headwater"
# The order of the pages in the site. Sphinx fails on a page that is not listed.
NAVIGATION = {
    "Begin": ("install",),
    "Tutorials": tuple(
        f"tutorials/{name}"
        for name in (
            "ten-minutes",
            "own-text",
            "own-labels",
            "thresholds",
            "papers",
            "serve",
            "cluster",
            "gpt2-small",
        )
    ),
    "The papers in code": (
        *(f"reading/{name}" for name in ("questions", "basics", "gpt1", "gpt2", "relatives", "slips", "pencil")),
        "published",
    ),
    "한국어": (
        *("tutorials/own-text.ko", "tutorials/korean", "tutorials/own-labels.ko", "tutorials/thresholds.ko"),
        *("tutorials/ten-minutes.ko", "tutorials/serve.ko"),
        *("reading/questions.ko", "reading/basics.ko", "reading/gpt1.ko", "reading/gpt2.ko"),
        *("reading/relatives.ko", "reading/slips.ko", "reading/pencil.ko", "your-model.ko", "install.ko"),
    ),
    "Guides": (
        *(
            "your-model",
            "corpus",
            "tokenizers",
            "pretraining",
            "evaluation",
            "serving",
            "operating",
            "scaling",
            "models",
        ),
        "other-tools",
        "troubleshooting",
        "results/index",
    ),
    "Reference": ("commands/index", "calls/index", "formats", "guarantees", "licences"),
    "Extending": (
        "architecture",
        "public-names",
        "extending/task",
        "extending/step",
        "extending/analysis",
        "extending/preset",
        "extending/command",
    ),
}
# On the site, a link to this file leads to the page of the papers' numbers.
PAPER_TABLES = "papers/src/headwater_papers/paper_tables.toml"
MADE = re.compile(r"<!-- made: (\w+) -->")
SOURCE = re.compile(r"^<!-- source (\S+)((?: \S+)+) -->\n(→ .*\n)?", re.M)


def main() -> int:
    """Write every page below the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    out = parser.parse_args().folder
    if out.exists() and not (out / "commands").is_dir():
        parser.error(f"{out} has no pages that this script made; name a folder that may be replaced")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out)
    shutil.copytree(ROOT / "papers" / "results", out / "results")
    with (out / "index.md").open("a", encoding="utf-8") as index:
        for caption, names in NAVIGATION.items():
            listed = "\n".join(names)
            index.write(f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{listed}\n```\n")
    (out / "public-names.md").write_text(public_names.page(), encoding="utf-8")
    (out / "published.md").write_text("\n".join(evaluation.published()) + "\n", encoding="utf-8")
    graph = architecture.packages()
    (out / "architecture.svg").write_text(architecture.picture(graph), encoding="utf-8")
    picture = "![The packages, and what each of them imports](architecture.svg)"
    made = {
        "packages": f"{picture}\n\n{architecture.table(graph)}",
        "protocols": "\n".join(evaluation.protocols()),
        "verification": "\n".join(evaluation.verification()),
    }
    for path in out.rglob("*.md"):
        text = path.read_text(encoding="utf-8").replace("../papers/results/", "results/")
        text = text.replace(f"../{PAPER_TABLES}", "published.md")
        text = MADE.sub(lambda match: made[match[1]], text)
        path.write_text(with_sources(text), encoding="utf-8")
    lists = {"commands": command_pages(), "calls": call_pages()}
    for folder, pages in lists.items():
        (out / folder).mkdir()
        for name, text in pages.items():
            (out / folder / f"{name}.md").write_text(text, encoding="utf-8")
    add_results(out / "results")
    return 0


def add_results(folder: Path) -> None:
    """Write the index of the published results: every page of `papers/results/`."""
    names = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md"))
    (folder / "index.md").write_text(
        _index("Results", "What `headwater reproduce` wrote.", names), encoding="utf-8"
    )


def _index(title: str, intro: str, names: list[str]) -> str:
    listed = "\n".join(names)
    return f"# {title}\n\n{intro}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def with_sources(markdown: str) -> str:
    """Return the page with each source comment replaced by the code that it names."""

    def block(match: re.Match[str]) -> str:
        code = "\n\n\n".join(source_lines(match[1], wanted) for wanted in match[2].split())
        return f"```{{code-block}} python\n:caption: {source_file(match[1]).relative_to(ROOT)}\n\n{code}\n```\n"

    return SOURCE.sub(block, markdown)


def source_file(name: str) -> Path:
    """Return the file that a source comment names: of headwater-papers, or below src/headwater/."""
    return (ROOT / "papers" / "src" if name.startswith("headwater_papers/") else PACKAGE) / name


def source_lines(name: str, wanted: str) -> str:
    """Return the source of an object, as `source_range`, with its docstring."""
    first, last = source_range(name, wanted)
    lines = source_file(name).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def source_range(name: str, wanted: str) -> tuple[int, int]:
    """Return the first and the last line of an object (`function`, `Class.method`, `CONSTANT`).

    Raises KeyError if the file has no such object.
    """
    text = source_file(name).read_text(encoding="utf-8")
    nodes: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for part in wanted.split("."):
        found = next((node for node in nodes if part in _names(node)), None)
        if found is None:
            raise KeyError(f"{name} has no {wanted}")
        nodes = found.body if isinstance(found, ast.ClassDef) else []
    assert found is not None
    first = min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))])
    return first, found.end_lineno or first


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def command_pages() -> dict[str, str]:
    """Return the Markdown of a page for each command, and of their index, by name."""
    group: Any = LazyGroup(name="headwater")
    names = group.list_commands(None)
    pages = {"index": _index("Commands", "Each page is what `--help` prints.", names)}
    for name in names:
        command: Any = group.get_command(None, name)
        parts = [f"# headwater {name}\n"]
        if hasattr(command, "commands"):
            parts.append(f"{command.help}\n")
            for inner in command.commands.values():
                parts += [f"## headwater {name} {inner.name}\n", *_manual(inner)]
        else:
            parts += _manual(command)
        pages[name] = "\n".join(parts)
    return pages


def _manual(command: Any) -> Iterator[str]:
    yield f"{_prose(command.help)}\n"
    for title, kind in (("Argument", "argument"), ("Option", "option")):
        rows = [p for p in command.params if p.param_type_name == kind and not getattr(p, "hidden", False)]
        if rows:
            yield f"| {title} | | |\n|---|---|---|"
            yield from map(_row, rows)
            yield ""


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name, kind = parameter.metavar or parameter.name, ""
    else:
        name, kind = ", ".join([*parameter.opts, *parameter.secondary_opts]), parameter.metavar or _kind(parameter)
    default = getattr(parameter.default, "value", parameter.default)
    notes = [_prose(getattr(parameter, "help", "")).strip()]
    if parameter.required:
        notes.append("Required.")
    elif isinstance(default, str | int | float | Path) and default not in (False, ""):
        notes.append(f"Default: `{default}`.")
    return f"| `{name}` | {kind} | {' '.join(filter(None, notes))} |"


def _kind(parameter: Any) -> str:
    """Return the kind of a parameter's value in plain words, empty for a flag."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    choices = getattr(annotation, "__members__", None)
    if choices:
        return " ".join(f"`{choice.value}`" for choice in choices.values())
    words = str(annotation or getattr(parameter, "type", "")).lower()
    kinds = {"path": "path", "int": "number", "float": "number", "bool": ""}
    return next((kind for word, kind in kinds.items() if word in words), "text")


def _prose(text: str | None) -> str:
    return (text or "").replace("\b\n", "").replace("|", "\\|").replace("<", "&lt;")


def call_pages() -> dict[str, str]:
    """Return the Markdown of a page for each public name of `headwater`, and of their index, by name."""
    names = [name for name in headwater.__all__ if not name.startswith("__")]
    pages = {"index": _index("Calls", "What `import headwater as hw` gives, from the docstrings.", names)}
    for name in names:
        public = getattr(headwater, name)
        kind, members = "function", ""
        if inspect.isclass(public):
            kind, members = "class", "   :members:\n   :inherited-members: Exception, BaseEstimator\n"
        where = f"`src/{public.__module__.replace('.', '/')}.py`"
        directive = f"```{{eval-rst}}\n.. auto{kind}:: headwater.{name}\n{members}```\n"
        pages[name] = f"# hw.{name}\n\n{directive}{''.join(_inherited(public))}\nIn {where}.\n"
    return pages


def _inherited(public: Any) -> Iterator[str]:
    """Yield what the docstrings of a class's bases say after their first paragraph: the shared parameters."""
    for owner in inspect.getmro(public)[1:-1] if inspect.isclass(public) else ():
        shared = (inspect.getdoc(owner) or "").partition("\n\n")[2]
        if shared and owner.__module__.startswith("headwater."):
            yield f"\n{shared}\n"


if __name__ == "__main__":
    sys.exit(main())
