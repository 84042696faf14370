"""The papers' numbers by protocol, metric and model, from `gpt2_tables.toml`.

Only values that are printed in a table or in the text are used, not points of a figure. A value belongs to the
protocol that fits the paper's description. GPT-1 prints its zero-shot scores (figure 2) only as a curve on a
rescaled axis, so they are not here.
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


# GPT-2's tables whose numbers an evaluation prints, by name.
PAPER_TABLES: dict[str, PaperTable] = PaperTable.read(Path(__file__).with_name("gpt2_tables.toml"))
LABELS = ("117M", "345M", "762M", "1542M")  # in the tables, of SIZES
SIZES = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")
_TEXT = PAPER_TABLES["gpt2-text"]


def _sizes(column: str, scale: float = 1.0) -> dict[str, float]:
    """Return one column of table 3 for the four sizes, divided by `scale`."""
    table = PAPER_TABLES["gpt2-table-3"]
    return {size: round(table.value(label, column) / scale, 6) for size, label in zip(SIZES, LABELS, strict=True)}


def _xl(row: str, scale: float = 1.0) -> dict[str, float]:
    return {SIZES[-1]: round(_TEXT.value(row, LABELS[-1]) / scale, 6)}


def _rouge(row: str, model: str) -> dict[str, Mapping[str, float]]:
    columns = {"rouge-1": "R-1", "rouge-2": "R-2", "rouge-l": "R-L", "rouge average": "average"}
    table = PAPER_TABLES["gpt2-table-4"]
    return {metric: {model: round(table.value(row, column) / 100, 4)} for metric, column in columns.items()}


PUBLISHED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    # GPT-2, table 3. Its accuracies on LAMBADA are those with the stop-word filter (section 3.3).
    "lambada.openai.whole-word": {
        "perplexity": _sizes("LAMBADA ppl"),
        "accuracy": _xl("LAMBADA accuracy without the stop-word filter", 100),
    },
    "lambada.openai.whole-word.stop-words": {"accuracy": _sizes("LAMBADA acc", 100)},
    "cbt.common-nouns.detokenized": {"accuracy": _sizes("CBT-CN", 100)},
    "cbt.named-entities.detokenized": {"accuracy": _sizes("CBT-NE", 100)},
    "wikitext-2.detokenized": {"perplexity": _sizes("WikiText2")},
    "ptb.detokenized": {"perplexity": _sizes("PTB")},
    "enwik8.bytes": {"bits per byte": _sizes("enwik8 bpb")},
    "text8.characters": {"bits per character": _sizes("text8 bpc")},
    "wikitext-103.detokenized": {"perplexity": _sizes("WikiText103")},
    "1bw.detokenized": {"perplexity": _sizes("1BW")},
    # Section 3.4, figure 3: partial scoring.
    "wsc273.partial": {"accuracy": _xl("Winograd, partial scoring, accuracy", 100)},
    # Section 3.5.
    "coqa.greedy": {"f1": _xl("CoQA, F1", 100)},
    # Table 4.
    "cnndm.tldr": _rouge("GPT-2 TL;DR:", SIZES[-1]),
    "cnndm.no-hint": _rouge("GPT-2 no hint", SIZES[-1]),
    "cnndm.lead-3": _rouge("Lede-3", "paper"),
    "cnndm.random-3": _rouge("Random-3", "paper"),
    # Section 3.7.
    "wmt14.en-fr": {"bleu": _xl("English to French, BLEU")},
    "wmt14.fr-en": {"bleu": _xl("French to English, BLEU")},
    # Section 3.8.
    "natural-questions.exact-match": {
        "exact match": _xl("Natural Questions, exact match", 100),
        "exact match, most confident 1 %": _xl("Natural Questions, the most confident 1 %", 100),
    },
    "natural-questions.question-type": {
        "exact match": {
            "paper": _TEXT.value("Natural Questions, most common answer of each question type", LABELS[-1]) / 100
        }
    },
}


def published(protocol: str, metric: str) -> Mapping[str, float]:
    """Return the published values of a protocol and metric by model."""
    return PUBLISHED.get(protocol, {}).get(metric, {})
