"""The section of a report about the papers' claims: the claim, the paper's number, the number here, the verdict.

They come from the `results.json` of folders that `headwater reproduce` wrote. Figures are embedded in the page.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.report import template

_TEMPLATE = Path(__file__).with_name("claims.html.j2")
# Numbers of a section or a seed are shown as text.
_TEXT = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class Claim(BaseModel):
    """One claim and its verdict, by the rule of `headwater reproduce`."""

    model_config = _TEXT

    claim: str
    paper: str
    here: str
    verdict: str
    sentence: str

    @property
    def tone(self) -> str:
        """The style-sheet class of the verdict."""
        tones = {"holds": "holds", "does not hold": "fails", "weaker than expected": "weaker"}
        tones["smaller than matters"] = "weaker"
        return tones.get(self.verdict, "open")


class Reproduction(BaseModel):
    """`results.json` of one experiment, its figures as (name, data URI)."""

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


def claims_section(folders: Sequence[Path]) -> Markup:
    """Return the section about folders of results as HTML; raise FolderError for one of another form."""
    return Markup(template(_TEMPLATE).render(reproductions=[_read(folder) for folder in folders]))


def _read(path: Path) -> Reproduction:
    stored, made = read_json(path / "results.json"), read_json(path / "made.json")
    try:
        figures = [(name.replace("-", " "), _embedded(path / f"{name}.svg")) for name in stored["figures"]]
        origin = f"commit {made['commit']}; {made['machine']}; {made['command']}"
        return Reproduction.model_validate(stored | {"figures": figures, "made": origin})
    except (AttributeError, KeyError, TypeError, ValidationError) as error:
        wrong = error.errors()[0]["loc"] if isinstance(error, ValidationError) else error
        raise FolderError(
            f"{path / 'results.json'} has another format: {wrong!r}", repair="Make it again"
        ) from None


def _embedded(path: Path) -> str:
    """Return an SVG file as a data URI; scripts in it do not run."""
    if not path.is_file():
        raise FolderError(f"{path} is missing", repair="Make the folder again")
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
