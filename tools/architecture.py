"""The picture and the table in docs/architecture.md: the rooms of the package, and what each of them uses.

python tools/architecture.py --check    fails when the page shows other imports than the real ones
python tools/architecture.py --write    puts the real ones in
"""

from __future__ import annotations

import ast
import html
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tree import summary

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headwater"
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
START, END = "<!-- rooms -->", "<!-- /rooms -->"
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
    """Headwater's modules that a module imports anywhere, but for those that only types need."""
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


def rooms() -> dict[str, set[str]]:
    """Each room, a folder or a file of the package, with the rooms it uses."""
    graph: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room.startswith("__"):
            continue  # the public names, and the way in
        targets = {name.split(".")[0] for name in used(ast.parse(path.read_text(encoding="utf-8")))}
        graph.setdefault(room, set()).update(targets - {room})
    return {room: {target for target in targets if target in graph} for room, targets in graph.items()}


def heights(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """The floor of each room: one above the highest that it uses."""

    @cache
    def height(room: str) -> int:
        return 1 + max(map(height, graph[room]), default=-1)

    return {room: height(room) for room in graph}


def essential(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the uses that follow from others: what a room uses through a room that it uses."""

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(graph[room]).union(*map(below, graph[room]))

    return {
        room: {t for t in targets if not any(t in below(other) for other in targets - {t})}
        for room, targets in graph.items()
    }


def picture(graph: Mapping[str, set[str]]) -> str:
    """The rooms as boxes on their floors, the ground below; a line where one uses another."""
    floor = heights(graph)
    lines = essential(graph)
    rows = [[room for room in sorted(graph) if floor[room] == number] for number in range(max(floor.values()) + 1)]
    width = {room: len(room) * CHARACTER + 2 * GAP / 1.6 for room in graph}
    whole = max(sum(width[room] + GAP for room in row) for row in rows) + 2 * MARGIN
    middle: dict[str, float] = {}
    for row in rows:
        # A room stands above what it uses, so that lines are short and cross little.
        row.sort(key=lambda room: sum(middle[t] for t in lines[room]) / max(1, len(lines[room])))
        space = (whole - sum(width[room] for room in row)) / (len(row) + 1)
        left = 0.0
        for room in row:
            left += space
            middle[room] = left + width[room] / 2
            left += width[room]
    height = len(rows) * ROW + MARGIN
    top = {room: height - MARGIN - BOX_HEIGHT - floor[room] * ROW for room in graph}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:.0f} {height}" role="img">',
        "<title>The rooms of Headwater: each uses those that lines lead down to</title>",
        f"<style>{STYLE}</style>",
    ]
    for room, targets in sorted(lines.items()):
        for target in sorted(targets):
            x, y, u, v = middle[room], top[room] + BOX_HEIGHT, middle[target], top[target]
            bend = (v - y) / 2
            parts.append(f'<path d="M{x:.0f} {y}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v}"/>')
    for room in sorted(graph):
        box = f'x="{middle[room] - width[room] / 2:.0f}" y="{top[room]}" width="{width[room]:.0f}"'
        parts.append(f'<rect {box} height="{BOX_HEIGHT}" rx="6"/>')
        parts.append(f'<text x="{middle[room]:.0f}" y="{top[room] + 20}">{html.escape(room)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def table(graph: Mapping[str, set[str]]) -> str:
    """The rooms from the top floor down, what each is for and all that it uses."""
    floor = heights(graph)
    parts = ["| floor | room | what it is | uses |", "|---|---|---|---|"]
    for room in sorted(graph, key=lambda room: (-floor[room], room)):
        place = PACKAGE / room / "__init__.py"
        what = summary(place if place.is_file() else PACKAGE / f"{room}.py")
        parts.append(f"| {floor[room]} | `{room}` | {what} | {', '.join(sorted(graph[room])) or '–'} |")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Check or write both; returns the exit status."""
    graph = rooms()
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(START)[0], page.split(END)[1]
    wanted = {PAGE: f"{before}{START}\n{table(graph)}\n{END}{after}", PICTURE: picture(graph)}
    if arguments == ["--write"]:
        for path, content in wanted.items():
            path.write_text(content, encoding="utf-8")
        return 0
    wrong = [p for p, content in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != content]
    for path in wrong:
        print(f"{path.name} shows other imports than the real ones: python tools/architecture.py --write")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
