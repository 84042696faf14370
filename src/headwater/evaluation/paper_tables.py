"""A table of a paper's numbers, with its source and a tag of how its numbers are known (`Tag`).

Scores are as printed: per cent, BLEU, perplexity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from headwater.config import read_toml

Tag = Literal["printed", "derived", "read off", "others", "unverified"]


@dataclass(frozen=True)
class PaperTable:
    """One table: its title, source and columns, and a row a system with "–" for missing values."""

    title: str
    source: str
    tag: Tag
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]
    note: str = ""

    def __post_init__(self) -> None:
        if self.tag not in get_args(Tag):
            raise ValueError(f"{self.title} has the tag {self.tag!r}")

    @classmethod
    def read(cls, path: Path) -> dict[str, PaperTable]:
        """Return the tables of a TOML file by name."""
        return {name: cls(**table) for name, table in read_toml(path).items()}

    def value(self, row: str, column: str) -> float:
        """Return one number; raises KeyError if the paper has none."""
        value = self.rows[row][self.columns.index(column)]
        if not isinstance(value, int | float):
            raise KeyError(f"{self.title}: {row} has no {column}")
        return float(value)
