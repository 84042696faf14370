"""List the licences of everything that Headwater installs, from the metadata of the installed packages.

python tools/licences.py docs/licences.md    write the page
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
# Licences with duties for those who redistribute the work, beyond naming its authors.
COPYLEFT = re.compile(r"\b(?:[AL]?GPL|MPL|EPL|EUPL|CDDL|OSL|SSPL|GNU|Mozilla|Eclipse|copyleft)", re.IGNORECASE)
UNSAID = "not said"
# NVIDIA's libraries, which only a torch built for CUDA installs.
_OF_CUDA = re.compile(r"(?:nvidia|cuda)-")
_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST = 60  # characters; some packages put the whole licence into this field


def declared(extra: str) -> list[str]:
    """Return the requirements of Headwater: always, and with an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked: list[str] = [*project["dependencies"]]
    waiting = [extra] if extra else []
    while waiting:
        for text in project["optional-dependencies"][waiting.pop()]:
            if Requirement(text).name == project["name"]:
                waiting += Requirement(text).extras
            else:
                asked.append(text)
    return asked


def installed(extra: str = "") -> set[str]:
    """Return the installed packages that Headwater needs with an extra, with their dependencies.

    NVIDIA's libraries are left out: they depend on which torch is installed.
    """
    seen: set[tuple[str, str]] = set()
    waiting = [(text, "") for text in declared(extra)]
    while waiting:
        text, asked_by = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": asked_by}):
            continue
        name = canonicalize_name(requirement.name)
        if _OF_CUDA.match(name):
            continue
        for part in ("", *requirement.extras):
            if (name, part) in seen:
                continue
            try:
                further = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                break
            seen.add((name, part))
            waiting += [(other, part) for other in further]
    return {str(name) for name, _ in seen}


def licence(name: str) -> str:
    """Return a package's own short statement of its licence."""
    metadata = importlib.metadata.metadata(name)
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classified = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License :: ")]
    named = sorted(c.removeprefix(_CLASSIFIER).removeprefix("License :: ") for c in classified)
    if named and named != ["OSI Approved"]:
        return ", ".join(named)
    free = str(metadata.get("License") or "").strip().split("\n")[0]
    return free[:_LONGEST] if free and free != "UNKNOWN" else UNSAID


def copyleft(licences: Iterable[str]) -> list[str]:
    """Return the licences that ask for more than naming the authors."""
    return [text for text in licences if COPYLEFT.search(text)]


def page() -> str:
    """Return the page in Markdown."""
    parts = [
        "# Licences of what Headwater installs",
        "",
        "Headwater is under the MIT licence and contains no code of others. It installs packages that have",
        "licences of their own. This page lists them as the packages' metadata states them; `python",
        "tools/licences.py docs/licences.md` writes it. A test fails if a package is installed whose licence asks",
        "for more than naming its authors and that is not listed here.",
        "",
    ]
    core = installed()
    optional = installed("all") - core
    everything = {name: licence(name) for name in sorted(core | optional)}
    parts += ["## Licences that ask for more than naming the authors", ""]
    strict = {name: text for name, text in everything.items() if copyleft([text])}
    parts += [f"- {name}: {text}" for name, text in strict.items()] or ["None."]
    parts += [
        "",
        "These licences bind those who change or redistribute the packages, not a program that only imports them.",
        "A torch built for CUDA also installs NVIDIA's libraries, under NVIDIA's own terms.",
    ]
    for title, names in (("Always installed", core), ("With the extra `all`", optional)):
        grouped: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names):
            grouped[everything[name]].append(name)
        parts += ["", f"## {title}", "", "| licence | packages |", "|---|---|"]
        parts += [f"| {text} | {', '.join(group)} |" for text, group in sorted(grouped.items())]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
