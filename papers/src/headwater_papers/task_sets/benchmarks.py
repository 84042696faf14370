"""The twelve sets of GPT-1 (Radford et al. 2018, table 1): task, metric and file names.

`benchmarks.toml` lists them, and names the readers of their files by the names in `READERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from headwater.config import Config, read_toml
from headwater.finetuning import MetricName, TaskName
from headwater_papers.task_sets import readers
from headwater_papers.task_sets.questions import read_questions
from headwater_papers.task_sets.readers import TableReader, json_lines
from headwater_papers.task_sets.tab_lines import tab_separated


class SetFiles(Config):
    """Files in the set's folder, which together are one part, and the name of their reader."""

    files: tuple[str, ...]
    reader: str
    remark: str = ""


class Test(Config):
    """A test part: the sources of its rows, and its file name on GLUE's server."""

    sources: tuple[SetFiles, ...]
    glue_file: str = ""


class HubSet(Config):
    """A set on the hub. parts: our part -> "folder/split"; texts, label: columns; names: labels by number.

    remark: what differs from the paper in its training rows.
    """

    repository: str
    texts: tuple[str, ...]
    parts: dict[str, str]
    label: str = "label"
    names: tuple[str, ...] = ()
    remark: str = ""


class Benchmark(Config):
    """One set. `tests` are named as in the table; `also` are metrics in addition to the paper's."""

    name: str
    folders: tuple[str, ...]
    task: TaskName
    train: tuple[SetFiles, ...]
    validation: tuple[SetFiles, ...] = ()
    tests: dict[str, Test]
    metric: MetricName = "accuracy"
    also: tuple[MetricName, ...] = ()
    target: Literal["class", "score", "answer"] | None = None
    validation_share: float = 0.1
    hub: HubSet | None = None

    @property
    def fine_tuning(self) -> dict[str, Any]:
        """Keys of the configuration of fine-tuning that the set decides."""
        return self.model_dump(include={"task", "target", "metric", "validation_share"})


_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_TWO_WAY = {"0": "entailment", "1": "not_entailment"}
# This copy of SNLI does not document its label codes; they follow from its pairs.
_NLI_SUBSET = {"1": "neutral", "2": "contradiction", "3": "entailment"}
_NUMBERED, _PAIR, _QUESTIONS = ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")
_ANSWERED = ("question", "sentence")

READERS: Mapping[str, TableReader] = {
    "nli-json": json_lines(_NUMBERED, "gold_label"),
    "nli-codes": tab_separated(_PAIR, "label", names=_NLI),
    "snli-subset": tab_separated(_PAIR, "label", header=("label", "label again", *_PAIR), names=_NLI_SUBSET),
    "mnli": tab_separated(_NUMBERED, "gold_label"),
    "mnli-sample": tab_separated(_PAIR, "label", header=("label", *_PAIR)),
    "pairs-json": json_lines(_PAIR, "label"),
    "scitail": tab_separated(_PAIR, "label", header=(*_PAIR, "label")),
    "qnli": tab_separated(_ANSWERED, "label"),
    "rte": tab_separated(_NUMBERED, "label"),
    "rte-codes": tab_separated(_NUMBERED, "label", quoted=True, names=_TWO_WAY),
    "cola": tab_separated(("sentence",), "label", header=("source", "label", "star", "sentence")),
    "sst2": tab_separated(("sentence",), "label"),
    "sst2-text-a": tab_separated(("text_a",), "label"),
    "sst2-sentences": tab_separated(("sentence",), "label", header=("sentence", "label")),
    "stsb": tab_separated(_NUMBERED, "score"),
    "stsb-original": readers.stsb_original,
    "qqp": tab_separated(_QUESTIONS, "is_duplicate", has_broken_rows=True),
    "qqp-sample": tab_separated(("q1", "q2"), "label", header=("label", "q1", "q2", "id")),
    "mrpc": readers.mrpc,
    "questions": read_questions,
    "hub": readers.fetched,
    # Test parts whose labels only GLUE's server has.
    "hidden-sentence": tab_separated(("sentence",), None),
    "hidden-pair": tab_separated(_NUMBERED, None),
    "hidden-questions": tab_separated(_QUESTIONS, None),
    "hidden-answer": tab_separated(_ANSWERED, None),
}


SETS = tuple(
    Benchmark.build(described, source="benchmarks.toml")
    for described in read_toml(Path(__file__).with_suffix(".toml"))["set"]
)
