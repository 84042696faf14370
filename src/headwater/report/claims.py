"""Read the claims of the papers for a report: the claim, the paper's number, the number here, and the verdict.

They come from the `results.json` of folders that `headwater reproduce` wrote. Figures are embedded in the page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import FolderError
from headwater.storage.files import read_json

KIND = "reproduction"


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict, by the rule of `headwater reproduce`."""

    claim: str
    paper: str
    here: str
    verdict: str
    sentence: str

    @property
    def tone(self) -> str:
        """The style-sheet class of the verdict."""
        tones = {"holds": "holds", "does not hold": "fails", "weaker than expected": "weaker"}
        return tones.get(self.verdict, "open")


@dataclass(frozen=True)
class Reproduction:
    """One experiment: claims, numbers, figures as (name, data URI), and its step in the chain."""

    name: str
    title: str
    paper: str
    section: str
    scale: str
    about: str
    claims: Sequence[Claim]
    rows: Sequence[Mapping[str, Any]]
    setup: Sequence[tuple[str, str]]
    notes: Sequence[str]
    rule: str
    figures: Sequence[tuple[str, str]]
    made: str
    step: str


def read_reproduction(path: Path, step: str) -> Reproduction:
    """Read a folder of results; `step` is its name in the chain. Raises FolderError for another form."""
    found = read_json(path / "results.json")
    try:
        made = read_json(path / "made.json")
        return Reproduction(
            name=str(found["experiment"]),
            title=str(found["title"]),
            paper=str(found["paper"]),
            section=str(found["section"]),
            scale=str(found["scale"]),
            about=str(found["claim"]),
            claims=[
                Claim(*(str(finding[key]) for key in ("claim", "paper", "here", "verdict", "sentence")))
                for finding in found["findings"]
            ],
            rows=found["rows"],
            setup=[(str(name), str(value)) for name, value in found["setup"]],
            notes=[str(note) for note in found["notes"]],
            rule=str(found["rule"]),
            figures=[(str(name).replace("-", " "), _embedded(path / f"{name}.svg")) for name in found["figures"]],
            made=f"commit {made['commit']}; {made['machine']}; {made['command']}",
            step=step,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(
            f"{path / 'results.json'} has another format: {error!r}", repair="Make it again"
        ) from None


def anchor(name: str) -> str:
    """Return the link target of a name on the page."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


def _embedded(path: Path) -> str:
    """Return an SVG file as a data URI; scripts in it do not run."""
    if not path.is_file():
        raise FolderError(f"{path} is missing", repair="Make the folder again")
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
