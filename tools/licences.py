"""The licences of everything that Headwater installs, from the metadata of the installed packages.

python tools/licences.py docs/licences.md    writes the page
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
# Licences that ask something of whoever passes the licensed work on, beyond naming its authors.
COPYLEFT = re.compile(r"\b(?:[AL]?GPL|MPL|EPL|EUPL|CDDL|OSL|SSPL|GNU|Mozilla|Eclipse|copyleft)", re.IGNORECASE)
UNSAID = "not said"
# NVIDIA's own libraries, which a torch built for CUDA brings and one without does not.
_OF_CUDA = re.compile(r"(?:nvidia|cuda)-")
_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST = 60  # characters; some packages put the whole licence into the field


def declared(extra: str) -> list[str]:
    """What Headwater itself asks for: always, and with an extra."""
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
    """Names of the installed packages that Headwater needs with an extra, and of those that they need.

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
    """What a package says of its own licence, in few words."""
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
    """Those of the licences that ask for more than their authors' names."""
    return [text for text in licences if COPYLEFT.search(text)]


def page() -> str:
    """The page in Markdown."""
    parts = [
        "# Licences of what Headwater installs",
        "",
        "Headwater itself is under the MIT licence. It carries no code of others; it installs packages, each",
        "under a licence of its own, listed here as its metadata say. `python tools/licences.py docs/licences.md`",
        "writes this page, and a test fails when a package comes in whose licence asks for more than its authors'",
        "names and that is not named here.",
        "",
    ]
    core = installed()
    optional = installed("all") - core
    everything = {name: licence(name) for name in sorted(core | optional)}
    parts += ["## Licences that ask for more than their authors' names", ""]
    strict = {name: text for name, text in everything.items() if copyleft([text])}
    parts += [f"- {name}: {text}" for name, text in strict.items()] or ["None."]
    parts += [
        "",
        "They bind whoever changes these packages or passes them on, not a program that imports them as they are.",
        "A torch built for CUDA also brings NVIDIA's libraries, under NVIDIA's own terms; one without does not.",
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
