"""The papers' numbers for all systems: GPT-1 (Radford et al. 2018) and GPT-2 (Radford et al. 2019).

Each table has its source and a tag of how its numbers are known (`TAGS`), which is shown with them. Scores are as
printed: per cent, BLEU, perplexity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Tag = Literal["printed", "derived", "read off", "others", "unverified"]
TAGS: Mapping[Tag, str] = {
    "printed": "printed in the paper, or in the authors' code or model card",
    "derived": "computed from printed numbers or released shapes",
    "read off": "read off a figure by others: approximate",
    "others": "reported by others",
    "unverified": "from memory, not verified",
}
Row = tuple[float | str | None, ...]


@dataclass(frozen=True)
class PaperTable:
    """One table: its title, source and columns, and a row a system with None for missing values."""

    title: str
    source: str
    tag: Tag
    columns: tuple[str, ...]
    rows: Mapping[str, Row]
    note: str = ""

    def value(self, row: str, column: str) -> float:
        """Return one number; raises KeyError if the paper has none."""
        found = self.rows[row][self.columns.index(column)]
        if not isinstance(found, int | float):
            raise KeyError(f"{self.title}: {row} has no {column}")
        return float(found)

    def best_before(self, column: str, own: Sequence[str]) -> float:
        """Return the best value of the systems other than the paper's own; higher is better."""
        place = self.columns.index(column)
        values = [row[place] for name, row in self.rows.items() if name not in own]
        return max(float(value) for value in values if isinstance(value, int | float))

    def markdown(self) -> list[str]:
        """Return the table as lines of Markdown, its source and tag below it."""
        lines = [f"| {self.title} | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
        for name, row in self.rows.items():
            cells = ("–" if cell is None else cell if isinstance(cell, str) else f"{cell:,.6g}" for cell in row)
            lines.append(f"| {name} | {' | '.join(cells)} |")
        note = f" {self.note}" if self.note else ""
        return [*lines, "", f"Source: {self.source}; {TAGS[self.tag]}.{note}"]


GPT1 = "GPT-1"
SIZES = ("117M", "345M", "762M", "1542M")
_GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")

TABLES: Mapping[str, PaperTable] = {
    "gpt1-table-2": PaperTable(
        "natural language inference, accuracy",
        "GPT-1, table 2",
        "printed",
        ("MNLI-m", "MNLI-mm", "SNLI", "SciTail", "QNLI", "RTE"),
        {
            "ESIM+ELMo (5×)": (None, None, 89.3, None, None, None),
            "CAFE (5×)": (80.2, 79.0, 89.3, None, None, None),
            "Stochastic Answer Network (3×)": (80.6, 80.1, None, None, None, None),
            "CAFE": (78.7, 77.9, 88.5, 83.3, None, None),
            "GenSen": (71.4, 71.3, None, None, 82.3, 59.2),
            "Multi-task BiLSTM+Attn": (72.2, 72.1, None, None, 82.1, 61.7),
            GPT1: (82.1, 81.4, 89.9, 88.3, 88.1, 56.0),
        },
        "k× is an ensemble of k models.",
    ),
    "gpt1-table-3": PaperTable(
        "question answering and commonsense, accuracy",
        "GPT-1, table 3",
        "printed",
        ("Story Cloze", "RACE-m", "RACE-h", "RACE"),
        {
            "val-LS-skip": (76.5, None, None, None),
            "Hidden Coherence Model": (77.6, None, None, None),
            "Dynamic Fusion Net (9×)": (None, 55.6, 49.4, 51.2),
            "BiAttention MRU (9×)": (None, 60.2, 50.3, 53.3),
            GPT1: (86.5, 62.9, 57.4, 59.0),
        },
        "Both earlier systems on RACE are ensembles; the paper prints no single model.",
    ),
    "gpt1-table-4": PaperTable(
        "classification and similarity",
        "GPT-1, table 4 (GLUE's server)",
        "printed",
        ("CoLA mc", "SST-2 acc", "MRPC F1", "STS-B pc", "QQP F1", "GLUE"),
        {
            "Sparse byte mLSTM": (None, 93.2, None, None, None, None),
            "TF-KLD": (None, None, 86.0, None, None, None),
            "ECNU (mixed ensemble)": (None, None, None, 81.0, None, None),
            "Single-task BiLSTM+ELMo+Attn": (35.0, 90.2, 80.2, 55.5, 66.1, 64.8),
            "Multi-task BiLSTM+ELMo+Attn": (18.9, 91.6, 83.5, 72.8, 63.3, 68.9),
            GPT1: (45.4, 91.3, 82.3, 82.0, 70.3, 72.8),
        },
    ),
    "gpt1-table-5": PaperTable(
        "ablations",
        "GPT-1, table 5",
        "printed",
        ("average", *_GLUE),
        {
            "full": (74.7, 45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0),
            "no-pretraining": (59.9, 18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
            "no-auxiliary": (75.0, 47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
            "lstm": (69.1, 30.3, 90.5, 83.2, 71.8, 68.1, 73.7, 81.1, 54.6),
        },
    ),
    "gpt1-pretraining": PaperTable(
        "pre-training", "GPT-1, section 4.1", "printed", ("perplexity a token",), {GPT1: (18.4,)}
    ),
    "gpt1-figure-2-left": PaperTable(
        "layers transferred, accuracy",
        "GPT-1, figure 2 on the left",
        "read off",
        ("no layer", "12 layers", "training curve at 12 layers"),
        {"MultiNLI": (72, 82, 97), "RACE": (40, 60, 92)},
    ),
    "gpt1-figure-2-right": PaperTable(
        "zero-shot at the end of pre-training, rescaled",
        "GPT-1, figure 2 on the right",
        "read off",
        ("Transformer",),
        {"sentiment": (0.68,), "Winograd": (0.55,), "acceptability": (0.43,), "question answering": (0.25,)},
        "0 is a random guess, 1 the best single model of the time; the paper prints neither constant.",
    ),
    "gpt2-table-3": PaperTable(
        "zero-shot language modelling",
        "GPT-2, table 3",
        "printed",
        (
            "LAMBADA ppl",
            "LAMBADA acc",
            "CBT-CN",
            "CBT-NE",
            "WikiText2",
            "PTB",
            "enwik8 bpb",
            "text8 bpc",
            "WikiText103",
            "1BW",
        ),
        {
            "state of the art": (99.8, 59.23, 85.7, 82.3, 39.14, 46.54, 0.99, 1.08, 18.3, 21.8),
            "117M": (35.13, 45.99, 87.65, 83.4, 29.41, 65.85, 1.16, 1.17, 37.50, 75.20),
            "345M": (15.60, 55.48, 92.35, 87.1, 22.76, 47.33, 1.01, 1.06, 26.37, 55.72),
            "762M": (10.87, 60.12, 93.45, 88.0, 19.93, 40.31, 0.97, 1.02, 22.05, 44.575),
            "1542M": (8.63, 63.24, 93.30, 89.05, 18.34, 35.76, 0.93, 0.98, 17.48, 42.16),
        },
        "The paper counts 7 of 8 data sets on which the largest model is ahead: all but 1BW.",
    ),
    "gpt2-text": PaperTable(
        "results in the text",
        "GPT-2, sections 3.3 to 3.8",
        "printed",
        ("117M", "1542M"),
        {
            "LAMBADA accuracy without the stop-word filter": (None, 52.66),
            "Winograd, partial scoring, accuracy": (None, 70.70),
            "CoQA, F1": (None, 55),
            "English to French, BLEU": (None, 5),
            "French to English, BLEU": (None, 11.5),
            "Natural Questions, exact match": (None, 4.1),
            "Natural Questions, the most confident 1 %": (None, 63.1),
            "Natural Questions, most common answer of each question type": (None, 1.0),
        },
        "The last row is a baseline without a model.",
    ),
    "gpt2-table-4": PaperTable(
        "summarisation, ROUGE F1",
        "GPT-2, table 4",
        "printed",
        ("R-1", "R-2", "R-L", "average"),
        {
            "Bottom-Up Sum": (41.22, 18.68, 38.34, 32.75),
            "Lede-3": (40.38, 17.66, 36.62, 31.55),
            "Seq2seq+Attn": (31.33, 11.81, 28.83, 23.99),
            "GPT-2 TL;DR:": (29.34, 8.27, 26.58, 21.40),
            "Random-3": (28.78, 8.63, 25.52, 20.98),
            "GPT-2 no hint": (21.58, 4.03, 19.47, 15.03),
        },
    ),
    "gpt2-table-6": PaperTable(
        "% of test 8-grams that also occur in",
        "GPT-2, table 6",
        "printed",
        ("PTB", "WikiText-2", "enwik8", "text8", "WikiText-103", "1BW"),
        {
            "its own training part": (2.67, 0.66, 7.50, 2.34, 9.09, 13.19),
            "WebText": (0.88, 1.63, 6.31, 3.94, 2.42, 3.75),
        },
    ),
    "gpt2-figure-1": PaperTable(
        "tasks over model size",
        "GPT-2, figure 1",
        "read off",
        SIZES,
        {
            "CoQA, F1": (26.5, 42.5, 50, 55),
            "French to English, BLEU": (0.6, 3.5, 8, 11.5),
            "summaries, ROUGE average": (16.2, 18.4, 20.1, 21.4),
            "Natural Questions, exact match": (0.8, 1.6, 2.6, 4.1),
        },
        "The last column is printed. The lines of the other systems are in the tables that follow.",
    ),
    "gpt2-references": PaperTable(
        "other systems that GPT-2 is compared with",
        "GPT-2, sections 3.2, 3.4, 3.5, 3.7 and 3.8, and table 4",
        "printed",
        ("value",),
        {
            "CoQA: BERT, supervised": (89,),
            "French to English: best unsupervised": (33.5,),
            "summaries: Lede-3": (31.55,),
            "summaries: Seq2seq+Attn": (23.99,),
            "summaries: Random-3": (20.98,),
            "questions: open-domain systems": ("30 to 50",),
            "questions: most common answer of each type": (1.0,),
        },
        "F1, BLEU, the ROUGE average and exact match.",
    ),
    "gpt2-lines": PaperTable(
        "lines of figure 1",
        "CoQA's test set (Reddy et al. 2019); WMT-14 (Artetxe et al. 2018)",
        "others",
        ("value",),
        {
            "CoQA: human": (88.8,),
            "CoQA: DrQA+PGNet": (65.1,),
            "CoQA: DrQA": (52.6,),
            "CoQA: PGNet": (45.4,),
            "French to English: denoising and back-translation": (15.56,),
        },
        "GPT-2's figure 1 names these systems without numbers, and is on CoQA's development set. PGNet's number is"
        " from that set.",
    ),
    "gpt2-lines-unverified": PaperTable(
        "further lines of figures 1 and 3",
        "CoQA (Reddy et al. 2019); WMT-14 (Artetxe et al. 2018, two papers); CNN/DailyMail (See et al. 2017)",
        "unverified",
        ("value",),
        {
            "CoQA: Seq2seq": (27.5,),
            "French to English: unsupervised statistical": (25.87,),
            "French to English: embedding nearest neighbour": (9.98,),
            "French to English: denoising": (7.28,),
            "summaries: PGNet": (28.51,),
            "Winograd: earlier best": (63.7,),
        },
        "GPT-2's figure 1 names these systems without numbers. The earlier best on Winograd is the paper's 70.7"
        " less its gain of 7 points.",
    ),
    "gpt2-figure-references": PaperTable(
        "lines of the figures",
        "GPT-2, figure 2",
        "read off",
        ("value",),
        {"CBT common nouns: human": (96,), "CBT named entities: human": (92,)},
    ),
    "sizes": PaperTable(
        "sizes",
        "GPT-1, section 4.1; GPT-2, table 2; parameters counted from the released shapes",
        "derived",
        ("layers", "width", "heads", "context", "parameters", "the paper's label"),
        {
            "GPT-1": (12, 768, 12, 512, 116_534_784, None),
            "GPT-2 small": (12, 768, 12, 1_024, 124_439_808, "117M"),
            "GPT-2 medium": (24, 1_024, 16, 1_024, 354_823_168, "345M"),
            "GPT-2 large": (36, 1_280, 20, 1_024, 774_030_080, "762M"),
            "GPT-2 XL": (48, 1_600, 25, 1_024, 1_557_611_200, "1542M"),
        },
        "The heads of GPT-2 are from its released files; the paper does not print them.",
    ),
    "sizes-bert": PaperTable(
        "BERT's sizes",
        "Devlin et al. 2019",
        "unverified",
        ("layers", "width", "heads", "context", "parameters"),
        {"BERT base": (12, 768, 12, 512, "110M"), "BERT large": (24, 1_024, 16, 512, "340M")},
    ),
    "bert-table-1": PaperTable(
        "GLUE without WNLI",
        "BERT (Devlin et al. 2019), table 1",
        "printed",
        ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "Average"),
        {
            "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
            "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
            "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
            "BERT large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
        },
        "From GLUE's server; F1 for QQP and MRPC, a correlation for STS-B and CoLA, accuracy elsewhere.",
    ),
    "bert-table-5": PaperTable(
        "BERT base without parts of its pre-training",
        "BERT (Devlin et al. 2019), table 5",
        "printed",
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD F1"),
        {
            "BERT base": (84.4, 88.4, 86.7, 92.7, 88.5),
            "BERT base without next sentences": (83.9, 84.9, 86.5, 92.6, 87.9),
            "left to right, without next sentences": (82.1, 84.3, 77.5, 92.1, 77.8),
            "left to right, with a bi-LSTM on top": (82.1, 84.1, 75.7, 91.6, 84.9),
        },
        "Development sets.",
    ),
    "corpora": PaperTable(
        "corpora",
        "GPT-1, section 4.1; GPT-2, section 2.1",
        "printed",
        ("text", "size"),
        {
            "ELMo": ("1B Word Benchmark, its sentences shuffled", "about as large as BooksCorpus"),
            "GPT-1": ("BooksCorpus", "over 7,000 unpublished books"),
            "GPT-2": ("WebText", "slightly over 8 million documents, 40 GB"),
        },
    ),
    "corpora-bert": PaperTable(
        "BERT's corpora",
        "Devlin et al. 2019",
        "unverified",
        ("text", "size"),
        {"BERT": ("BooksCorpus and English Wikipedia", "800M and 2,500M words")},
    ),
}

# GPT-1's sets by their names here: the table and the column that print them.
GPT1_COLUMNS: Mapping[str, tuple[str, str]] = {
    "mnli-m": ("gpt1-table-2", "MNLI-m"),
    "mnli-mm": ("gpt1-table-2", "MNLI-mm"),
    "snli": ("gpt1-table-2", "SNLI"),
    "scitail": ("gpt1-table-2", "SciTail"),
    "qnli": ("gpt1-table-2", "QNLI"),
    "rte": ("gpt1-table-2", "RTE"),
    "storycloze": ("gpt1-table-3", "Story Cloze"),
    "race-m": ("gpt1-table-3", "RACE-m"),
    "race-h": ("gpt1-table-3", "RACE-h"),
    "race": ("gpt1-table-3", "RACE"),
    "cola": ("gpt1-table-4", "CoLA mc"),
    "sst2": ("gpt1-table-4", "SST-2 acc"),
    "mrpc": ("gpt1-table-4", "MRPC F1"),
    "stsb": ("gpt1-table-4", "STS-B pc"),
    "qqp": ("gpt1-table-4", "QQP F1"),
}


def gpt1(task: str) -> float:
    """Return GPT-1's fine-tuned score on a set, as printed."""
    table, column = GPT1_COLUMNS[task]
    return TABLES[table].value(GPT1, column)


def gain(task: str) -> float:
    """Return how far GPT-1 is above the best earlier system that its table prints for a set."""
    table, column = GPT1_COLUMNS[task]
    return round(gpt1(task) - TABLES[table].best_before(column, [GPT1]), 2)


def gpt1_ahead() -> list[str]:
    """Return the sets of table 1 on which GPT-1 is ahead of every earlier system: "9 of 12"."""
    parts = {"mnli-mm", "race-m", "race-h"}  # of sets that are counted as a whole
    return [task for task in GPT1_COLUMNS if task not in parts and gain(task) > 0]


def gpt2_ahead() -> list[str]:
    """Return the data sets of table 3 on which the largest GPT-2 is ahead: the paper's "7 of 8"."""
    table = TABLES["gpt2-table-3"]
    lower = {"LAMBADA ppl", "WikiText2", "PTB", "enwik8 bpb", "text8 bpc", "WikiText103", "1BW"}
    found: dict[str, bool] = {}
    for column in table.columns:
        before, now = (table.value(row, column) for row in ("state of the art", SIZES[-1]))
        name = column.split()[0].split("-")[0]
        found[name] = found.get(name, True) and (now < before if column in lower else now > before)
    return [name for name, ahead in found.items() if ahead]
