"""Compare the counts of tests/peers/asked.toml with the source of a peer.

python tools/peers.py vLLM=FOLDER …

asked.toml lists what the tests of other servers assert of this one, and what of it is refused on purpose.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ASKED = ROOT / "tests" / "peers" / "asked.toml"


def entries(peer: dict[str, Any], kind: str) -> Iterator[tuple[str, str, int, str]]:
    """Yield each (file, test, number of assertions, our test or reason) of `kind`, "held" or "refused"."""
    for file, tests in peer.get(kind, {}).items():
        for test, (count, name) in tests.items():
            yield file, test, count, name


def assertions(source: Path) -> Counter[str]:
    """Return how many assertions each test of a file has: `assert`, `raises` and `assert_matches_type`."""
    counts: Counter[str] = Counter()
    for function in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test"):
            counts[function.name] += sum(map(_asserts, ast.walk(function)))
    return counts


def _asserts(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return isinstance(node, ast.Assert) or name in {"raises", "assert_matches_type"}


def differences(name: str, folder: Path) -> list[str]:
    """Return the tests of a peer whose number of assertions is another, or that are not in the list."""
    peer = next(one for one in tomllib.loads(ASKED.read_text(encoding="utf-8"))["peer"] if one["name"] == name)
    listed: dict[str, Counter[str]] = {}
    for kind in ("held", "refused"):
        for file, test, count, _ in entries(peer, kind):
            listed.setdefault(file, Counter())[test] += count
    found = []
    tests = folder / peer["folder"] if (folder / peer["folder"]).is_dir() else folder
    for file, counts in listed.items():
        theirs = assertions(tests / file)
        for test in sorted(theirs.keys() | counts.keys()):
            if theirs[test] != counts[test]:
                found.append(f"{file}::{test}: {theirs[test]} assertions, listed {counts[test]}")
    return found


def main(arguments: list[str]) -> int:
    """Print the differences from the peers that are named. Return the exit status."""
    lines = [line for argument in arguments for line in differences(*_named(argument))]
    print("\n".join(lines))
    return 1 if lines else 0


def _named(argument: str) -> tuple[str, Path]:
    name, _, folder = argument.partition("=")
    return name, Path(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
