"""Keep the code in the documentation equal to the files of `examples/`, and its links to the package's code right.

python tools/examples.py --check    fail if a page shows other code than the file, or code that is not a file
python tools/examples.py --write    write the files into the pages
python tools/examples.py --run [PAGE …]   run the examples whose output a page shows, and write that output

A page says `<!-- examples/NAME -->`, and the block after it is the file. A block of output has the language
`text`, and before it `<!-- output -->`, or `<!-- output of examples/NAME -->` for output that `--run` writes. An
example runs in the root of the repository, and its standard output is shown.

After a comment `<!-- source FILE OBJECT … -->` comes a line with these objects and a link to the file in
`src/headwater/`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pages as site
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- (examples/\S+) -->\n(?:```\w*\n.*?^```\n)?", re.M | re.S)
OUTPUT = "<!-- output -->"
OUTPUT_OF = re.compile(r"^<!-- output of (examples/\S+\.(?:sh|py)) -->\n(?:```text\n(.*?)^```\n)?", re.M | re.S)
LANGUAGES = {
    ".py": "python",
    ".sh": "sh",
    ".toml": "toml",
    ".slurm": "sh",
    ".patch": "diff",
    ".html": "html",
    ".service": "ini",
    ".dockerfile": "dockerfile",
    ".conf": "nginx",
    ".yml": "yaml",
}


def pages() -> list[Path]:
    """Return every page that may show code. Experiments write the code and output in papers/results."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    top = [ROOT / name for name in ("README.md", "README.ko.md", "CONTRIBUTING.md")]
    return [*top, *(path for path in found if "results" not in path.parts)]


def filled(text: str, page: Path) -> str:
    """Return the text of `page` with the current content of the files and links to the code that it names."""

    def block(match: re.Match[str]) -> str:
        path = ROOT / match[1]
        code = path.read_text(encoding="utf-8")
        return f"<!-- {match[1]} -->\n```{LANGUAGES[path.suffix]}\n{code}```\n"

    def links(match: re.Match[str]) -> str:
        name, wanted = match[1], match[2].split()
        for one in wanted:
            site.source_range(name, one)  # raises if the file has no such object
        target = os.path.relpath(site.source_file(name), page.parent)
        objects = ", ".join(f"`{one}`" for one in wanted)
        return f"<!-- source {name} {' '.join(wanted)} -->\n→ {objects} in [`{name}`]({target})\n"

    return site.SOURCE.sub(links, MARK.sub(block, text))


def outputs(text: str) -> dict[str, str]:
    """Return the output that a page shows of each example."""
    return {match[1]: match[2] or "" for match in OUTPUT_OF.finditer(text)}


def with_outputs(text: str) -> str:
    """Return the page with the output that its examples have now."""
    return OUTPUT_OF.sub(lambda match: f"<!-- output of {match[1]} -->\n```text\n{output(match[1])}```\n", text)


@cache
def output(example: str) -> str:
    """Return the standard output of an example that runs in the root of the repository, as a page shows it."""
    command = [sys.executable] if example.endswith(".py") else ["bash", "-euo", "pipefail"]
    ran = subprocess.run([*command, example], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return stripped(ran.stdout)


def stripped(printed: str) -> str:
    """Return what was printed without spaces at the ends of lines and empty lines around it."""
    return "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())


def shown(text: str) -> list[str]:
    """Return the names of the examples that a page shows."""
    return [match[1] for match in MARK.finditer(text)]


def strangers(text: str) -> Iterator[int]:
    """Yield the line numbers of code blocks that are neither examples nor marked as output."""
    lines = text.splitlines()
    for token in MarkdownIt().parse(text):
        if token.type not in {"fence", "code_block"} or token.map is None:
            continue
        start = token.map[0]
        before = lines[start - 1] if start else ""
        named = before.startswith("<!-- examples/")
        output = before == OUTPUT or OUTPUT_OF.match(f"{before}\n") is not None
        if token.type == "code_block" or not (named or (output and token.info == "text")):
            yield start + 1


def main() -> int:
    """Check or write every page. Return the exit status."""
    status = 0
    chosen = [Path(name).resolve() for name in sys.argv[2:]]
    for path in chosen or pages():
        text = path.read_text(encoding="utf-8")
        expected = with_outputs(text) if sys.argv[1] == "--run" else filled(text, path)
        if sys.argv[1] in {"--write", "--run"}:
            path.write_text(expected, encoding="utf-8")
        elif text != expected:
            print(f"{path.relative_to(ROOT)}: shows other code than examples/: make format")
            status = 1
        for line in strangers(expected):
            print(f"{path.relative_to(ROOT)} line {line}: code that is not a file of examples/")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
