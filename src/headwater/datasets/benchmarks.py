"""The twelve sets of GPT-1 (Radford et al. 2018, table 1): task, metric, the paper's numbers, and file names.

`benchmarks.toml` lists them, and names the readers of their files by the names in `READERS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.config import read_toml
from headwater.datasets import readers
from headwater.datasets.paper_tables import gpt1
from headwater.datasets.readers import Reader, json_lines, tab_separated
from headwater.datasets.rows import Metric, Target, Task


@dataclass(frozen=True)
class SetFiles:
    """Files in the set's folder, which together are one part, and their reader."""

    files: tuple[str, ...]
    read: Reader
    remark: str = ""


@dataclass(frozen=True)
class Test:
    """A test part: the paper's score in per cent, the sources of its rows, and its file name on GLUE's server."""

    published: float
    sources: tuple[SetFiles, ...]
    glue_file: str = ""


@dataclass(frozen=True)
class HubSet:
    """A set on the hub. parts: our part -> "folder/split"; texts, label: columns; names: labels by number."""

    repository: str
    texts: Sequence[str]
    parts: Mapping[str, str]
    label: str = "label"
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Benchmark:
    """One set. `tests` are named as in the table; `also` are metrics in addition to the paper's."""

    name: str
    folders: tuple[str, ...]
    task: Task
    train: tuple[SetFiles, ...]
    validation: tuple[SetFiles, ...]
    tests: Mapping[str, Test]
    metric: Metric
    also: tuple[Metric, ...]
    target: Target | None
    validation_share: float
    hub: HubSet | None


_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_TWO_WAY = {"0": "entailment", "1": "not_entailment"}
# This copy of SNLI does not document its label codes; they follow from its pairs.
_NLI_SUBSET = {"1": "neutral", "2": "contradiction", "3": "entailment"}
_NUMBERED, _PAIR, _QUESTIONS = ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")
_ANSWERED = ("question", "sentence")

READERS: Mapping[str, Reader] = {
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
    "qqp": tab_separated(_QUESTIONS, "is_duplicate"),
    "qqp-sample": tab_separated(("q1", "q2"), "label", header=("label", "q1", "q2", "id")),
    "mrpc": readers.mrpc,
    "race-folder": readers.race_folder,
    "race-lines": readers.race_lines,
    "race-prompts": readers.race_prompts,
    "story-cloze": readers.story_cloze,
    # Test parts whose labels only GLUE's server has.
    "hidden-sentence": tab_separated(("sentence",), None),
    "hidden-pair": tab_separated(_NUMBERED, None),
    "hidden-questions": tab_separated(_QUESTIONS, None),
    "hidden-answer": tab_separated(_ANSWERED, None),
}


def _sources(listed: list[dict[str, Any]]) -> tuple[SetFiles, ...]:
    return tuple(SetFiles(tuple(one["files"]), READERS[one["reader"]], one.get("remark", "")) for one in listed)


def _benchmark(described: Mapping[str, Any]) -> Benchmark:
    tests = {
        name: Test(gpt1(name), _sources(test["sources"]), test.get("glue_file", ""))
        for name, test in described["tests"].items()
    }
    return Benchmark(
        name=described["name"],
        folders=tuple(described["folders"]),
        task=described["task"],
        train=_sources(described["train"]),
        validation=_sources(described.get("validation", [])),
        tests=tests,
        metric=described.get("metric", "accuracy"),
        also=tuple(described.get("also", ())),
        target=None if described["task"] == "choice" else described.get("target", "class"),
        validation_share=described.get("validation_share", 0.1),
        hub=HubSet(**described["hub"]) if "hub" in described else None,
    )


SETS = tuple(map(_benchmark, read_toml(Path(__file__).with_suffix(".toml"))["set"]))
