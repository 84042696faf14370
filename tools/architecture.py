"""Draw the packages and their imports, as a picture and a table. `tools/pages.py` puts them into a page.

A package here is a folder of src/headwater/ or a module directly in it.
"""

from __future__ import annotations

import ast
import html
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from public_names import summary

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headwater"
# The picture, in pixels.
BOX_HEIGHT, CHARACTER, ROW, GAP, MARGIN = 30, 8.2, 78, 22, 20
STYLE = """
  rect { fill: #eef2f7; stroke: #51657e } text { fill: #1c2733; font: 14px monospace; text-anchor: middle }
  path { fill: none; stroke: #8fa1b5; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    rect { fill: #243040; stroke: #8fa1b5 } text { fill: #e6ecf2 } path { stroke: #5f7389 }
  }
"""


def used(tree: ast.Module) -> Iterator[str]:
    """Yield Headwater's modules that a module imports anywhere, except under TYPE_CHECKING."""
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "headwater":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headwater."):
            yield (node.module or "").removeprefix("headwater.")
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (name.removeprefix("headwater.") for name in names if name.startswith("headwater."))


def packages() -> dict[str, set[str]]:
    """Return each package with the packages that it imports."""
    graph: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if package.startswith("__"):
            continue  # the public names and the entry point
        targets = {name.split(".")[0] for name in used(ast.parse(path.read_text(encoding="utf-8")))}
        graph.setdefault(package, set()).update(targets - {package})
    return {package: {target for target in targets if target in graph} for package, targets in graph.items()}


def layers(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the layer of each package: one above the highest that it imports."""

    @cache
    def layer(package: str) -> int:
        return 1 + max(map(layer, graph[package]), default=-1)

    return {package: layer(package) for package in graph}


def essential(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without the imports that follow from others (the transitive reduction)."""

    @cache
    def below(package: str) -> frozenset[str]:
        return frozenset(graph[package]).union(*map(below, graph[package]))

    return {
        package: {t for t in targets if not any(t in below(other) for other in targets - {t})}
        for package, targets in graph.items()
    }


def picture(graph: Mapping[str, set[str]]) -> str:
    """Return an SVG: a box for each package, a row for each layer, a line from each package to what it imports."""
    layer = layers(graph)
    lines = essential(graph)
    rows = [[name for name in sorted(graph) if layer[name] == number] for number in range(max(layer.values()) + 1)]
    width = {package: len(package) * CHARACTER + 2 * GAP / 1.6 for package in graph}
    whole = max(sum(width[package] + GAP for package in row) for row in rows) + 2 * MARGIN
    middle: dict[str, float] = {}
    for row in rows:
        # A package is drawn above what it imports, so that lines are short and few of them cross.
        row.sort(key=lambda package: sum(middle[t] for t in lines[package]) / max(1, len(lines[package])))
        space = (whole - sum(width[package] for package in row)) / (len(row) + 1)
        left = 0.0
        for package in row:
            left += space
            middle[package] = left + width[package] / 2
            left += width[package]
    height = len(rows) * ROW + MARGIN
    top = {package: height - MARGIN - BOX_HEIGHT - layer[package] * ROW for package in graph}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:.0f} {height}" role="img">',
        "<title>The packages of Headwater: lines lead down from each package to those that it imports</title>",
        f"<style>{STYLE}</style>",
    ]
    for package, targets in sorted(lines.items()):
        for target in sorted(targets):
            x, y, u, v = middle[package], top[package] + BOX_HEIGHT, middle[target], top[target]
            bend = (v - y) / 2
            parts.append(f'<path d="M{x:.0f} {y}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v}"/>')
    for package in sorted(graph):
        box = f'x="{middle[package] - width[package] / 2:.0f}" y="{top[package]}" width="{width[package]:.0f}"'
        parts.append(f'<rect {box} height="{BOX_HEIGHT}" rx="6"/>')
        parts.append(f'<text x="{middle[package]:.0f}" y="{top[package] + 20}">{html.escape(package)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def table(graph: Mapping[str, set[str]]) -> str:
    """Return a Markdown table of the packages, from the top layer down, with everything that they import."""
    layer = layers(graph)
    parts = ["| layer | package | what it is | imports |", "|---|---|---|---|"]
    for package in sorted(graph, key=lambda package: (-layer[package], package)):
        place = PACKAGE / package / "__init__.py"
        what = summary(place if place.is_file() else PACKAGE / f"{package}.py")
        parts.append(f"| {layer[package]} | `{package}` | {what} | {', '.join(sorted(graph[package])) or '–'} |")
    return "\n".join(parts)
