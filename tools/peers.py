"""Count what the tests of other servers assert of this one, and what of it is refused on purpose.

python tools/peers.py --check    fail if the table of docs/serving.md is not that of tests/peers/asked.toml
python tools/peers.py --write    write the table
python tools/peers.py --count vLLM=FOLDER …    compare the counts with a peer's source
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ASKED = ROOT / "tests" / "peers" / "asked.toml"
PAGE = ROOT / "docs" / "serving.md"
PART = re.compile(r"(?<=<!-- tools/peers\.py -->\n).*?(?=<!-- end -->)", re.S)


def entries(peer: dict[str, Any], kind: str) -> Iterator[tuple[str, str, int, str]]:
    """Yield each (file, test, number of assertions, our test or reason) of `kind`, "held" or "refused"."""
    for file, tests in peer.get(kind, {}).items():
        for test, (count, name) in tests.items():
            yield file, test, count, name


def table() -> str:
    """Return the peers with their counts, and the reasons with theirs."""
    asked = tomllib.loads(ASKED.read_text(encoding="utf-8"))
    rows = ["| tests of | tests | assertions | held | refused |", "|---|---|---|---|---|"]
    reasons: dict[str, Counter[str]] = {reason: Counter() for reason in asked["reasons"]}
    for peer in asked["peer"]:
        held, refused = (list(entries(peer, kind)) for kind in ("held", "refused"))
        for _, _, count, reason in refused:
            reasons[reason][peer["name"]] += count
        tests = len({(file, test) for file, test, *_ in [*held, *refused]})
        kept, other = (sum(count for _, _, count, _ in part) for part in (held, refused))
        rows.append(f"| {peer['name']} {peer['version']} | {tests} | {kept + other} | {kept} | {other} |")
    rows += ["", "| refused on purpose | assertions |", "|---|---|"]
    for reason, counts in reasons.items():
        rows.append(f"| {asked['reasons'][reason]} | {', '.join(f'{name} {n}' for name, n in counts.items())} |")
    return "\n".join(rows) + "\n"


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
    """Run the command line and return its exit status."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = PART.sub(lambda _: table(), page)
    if arguments == ["--write"]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif arguments == ["--check"]:
        if page != wanted:
            print("docs/serving.md: run python tools/peers.py --write", file=sys.stderr)
            return 1
    elif arguments[:1] == ["--count"]:
        found = [line for one in arguments[1:] for line in differences(*_named(one))]
        print("\n".join(found))
        return 1 if found else 0
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


def _named(argument: str) -> tuple[str, Path]:
    name, _, folder = argument.partition("=")
    return name, Path(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
