"""asked.toml: each assertion of a peer is held by a test that is here, or refused for a reason that is listed."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def test_what_is_held_has_a_test_and_what_is_refused_a_reason() -> None:
    asked = tomllib.loads((HERE / "asked.toml").read_text(encoding="utf-8"))
    ours = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    named: dict[str, set[str]] = {"held": set(), "refused": set()}
    for peer in asked["peer"]:
        for kind, names in named.items():
            names |= {name for tests in peer[kind].values() for _, name in tests.values()}
    assert named["held"] <= ours
    assert named["refused"] == set(asked["reasons"])
