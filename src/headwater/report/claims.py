"""Read the claims of the papers for a report: the claim, the paper's number, the number here, and the verdict.

They come from the `results.json` of folders that `headwater reproduce` wrote. Figures are embedded in the page.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.errors import FolderError
from headwater.reading import read_json

# The kind of a folder with the results of an experiment.
KIND = "reproduction"


# Numbers of a section or a seed are shown as text.
_TEXT = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class Claim(BaseModel):
    """One claim and its verdict, by the rule of `headwater reproduce`. empty: why it says nothing, or ""."""

    model_config = _TEXT

    claim: str
    paper: str
    here: str
    verdict: str
    sentence: str
    empty: str = ""

    @property
    def tone(self) -> str:
        """The style-sheet class of the verdict."""
        if self.empty:
            return "open"
        tones = {"holds": "holds", "does not hold": "fails", "weaker than expected": "weaker"}
        return tones.get(self.verdict, "open")


class Reproduction(BaseModel):
    """`results.json` of one experiment, its figures as (name, data URI), and its step in the chain."""

    model_config = _TEXT

    experiment: str
    title: str
    paper: str
    section: str
    scale: str
    claim: str
    findings: list[Claim]
    rows: list[dict[str, Any]]
    setup: list[tuple[str, str]]
    notes: list[str]
    rule: str
    figures: list[tuple[str, str]]
    made: str
    step: str


def read_reproduction(path: Path, step: str) -> Reproduction:
    """Read a folder of results; `step` is its name in the chain. Raises FolderError for another form."""
    stored, made = read_json(path / "results.json"), read_json(path / "made.json")
    try:
        figures = [(name.replace("-", " "), _embedded(path / f"{name}.svg")) for name in stored["figures"]]
        origin = f"commit {made['commit']}; {made['machine']}; {made['command']}"
        return Reproduction.model_validate(stored | {"figures": figures, "made": origin, "step": step})
    except (AttributeError, KeyError, TypeError, ValidationError) as error:
        wrong = error.errors()[0]["loc"] if isinstance(error, ValidationError) else error
        raise FolderError(
            f"{path / 'results.json'} has another format: {wrong!r}", repair="Make it again"
        ) from None


def anchor(name: str) -> str:
    """Return the link target of a name on the page."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


def _embedded(path: Path) -> str:
    """Return an SVG file as a data URI; scripts in it do not run."""
    if not path.is_file():
        raise FolderError(f"{path} is missing", repair="Make the folder again")
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
