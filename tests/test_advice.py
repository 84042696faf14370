"""A command that a message advises runs as it is copied, whatever the names of the files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What a user names freely: paths, texts, columns and models.
FREE = {
    *("path", "paths", "file", "folder", "folders", "out", "source", "sources", "script", "target", "tokens"),
    *("corpus", "tokenizer", "model", "base", "run", "recipe", "prompt", "text", "column", "parent"),
}
# A command and words of it, or an option, up to a value.
COMMAND = re.compile(
    r"(?:\b(?:headwater [a-z]+|sh|rm|mv|cp|cd|tr|iconv|pip install)(?: [^ .;]+)* (?:< )?|--[a-z-]+[ =])$"
)


def advised(node: ast.AST, function: ast.AST) -> Iterator[tuple[str, ast.FormattedValue, ast.AST]]:
    """Yield for each value in an f-string the text before it, the value, and the function.

    What an error has seen is not advice, and shlex quotes what it is called with.
    """
    if isinstance(node, ast.FunctionDef):
        function = node
    before = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else []:
        if isinstance(part, ast.FormattedValue):
            yield before, part, function
            before += "VALUE"
        elif isinstance(part, ast.Constant):
            before += str(part.value)
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    for child in ast.iter_child_nodes(node):
        is_seen = called.endswith("Error") and child in node.args  # type: ignore[attr-defined]
        if not is_seen and not called.startswith("shlex."):
            yield from advised(child, function)


def is_free(value: ast.FormattedValue) -> bool:
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(value)}
    return value.conversion == -1 and value.format_spec is None and bool(FREE & names)


def test_each_value_in_an_advised_command_is_quoted() -> None:
    bare, seen = [], 0
    for path in (p for folder in ("src", "papers/src") for p in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for before, value, function in advised(tree, tree):
            if COMMAND.search(before) and is_free(value):
                shown = ast.unparse(value.value)
                quoted = rf"\b{re.escape(shown)}\b.* = .*shlex\.|shlex\.quote\(.* = {re.escape(shown)}\b"
                seen += 1
                if "shlex." not in shown and not re.search(quoted, ast.unparse(function)):
                    bare.append(f"{path.relative_to(ROOT)}:{value.lineno}: {before[-40:]}{{{shown}}}")
    assert bare == []
    assert seen > 10
