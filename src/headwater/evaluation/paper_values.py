"""The papers' numbers by protocol, metric and model, from `gpt2_tables.toml`.

Only values that are printed in a table or in the text are used, not points of a figure. A value belongs to the
protocol that fits the paper's description. GPT-1 prints its zero-shot scores (figure 2) only as a curve on a
rescaled axis, so they are not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.config import read_toml


@dataclass(frozen=True)
class PaperTable:
    """One table: its title, source and columns, and a row a system with "–" for missing values."""

    title: str
    source: str
    tag: str  # how the numbers are known, such as "printed"
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]
    note: str = ""

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


# GPT-2's tables whose numbers an evaluation prints, by name.
PAPER_TABLES: dict[str, PaperTable] = PaperTable.read(Path(__file__).with_name("gpt2_tables.toml"))
LABELS = ("117M", "345M", "762M", "1542M")  # in the tables, of SIZES
SIZES = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")


# By protocol and metric: where the numbers are.
PLACES = read_toml(Path(__file__).with_name("gpt2_protocols.toml"))


def published(protocol: str, metric: str) -> Mapping[str, float]:
    """Return the published values of a protocol and metric by model: the four sizes, or one."""
    place = PLACES.get(protocol, {}).get(metric)
    if place is None:
        return {}
    table, scale = PAPER_TABLES[place["table"]], place.get("divide", 1)
    one = {place.get("model", SIZES[-1]): place["row"]} if "row" in place else {}
    rows = one or dict(zip(SIZES, LABELS, strict=True))
    return {name: round(table.value(row, place["column"]) / scale, 6) for name, row in rows.items()}
