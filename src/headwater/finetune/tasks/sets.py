"""The twelve sets of GPT-1 (Radford et al. 2018, table 1): task, metric, the paper's numbers, and where files lie.

For each part of a set the first file that is there is used: official distributions first, then the forms in which
the sets are handed around. A set without training rows at hand is trained on a part of what there is, and its
table row says that it is not comparable with the paper's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.config import nearest
from headwater.errors import DataError, UsageError
from headwater.finetune.examples import Raw, Target
from headwater.finetune.inputs import Task
from headwater.finetune.metrics import Metric
from headwater.finetune.tasks import hub, readers
from headwater.finetune.tasks.readers import Reader, json_lines, tab_separated


@dataclass(frozen=True)
class Source:
    """Files below the set's folder (all of them together make the part), and how to read them."""

    files: tuple[str, ...]
    read: Reader
    remark: str = ""


@dataclass(frozen=True)
class Benchmark:
    """One set. tests: name of the table's row -> where its rows are; published: the paper's number for each."""

    name: str
    folders: tuple[str, ...]
    task: Task
    metric: Metric
    train: tuple[Source, ...]
    validation: tuple[Source, ...]
    tests: Mapping[str, tuple[Source, ...]]
    published: Mapping[str, float]
    target: Target | None = "class"
    also: tuple[Metric, ...] = ()
    validation_share: float = 0.1
    glue_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The parts of a set that are there: paths and rows; `remarks` say where they are not the official ones."""

    benchmark: Benchmark
    train: list[Raw]
    validation: list[Raw] | None
    tests: dict[str, list[Raw]]
    paths: dict[str, Path]
    remarks: list[str]


_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_TWO_WAY = {"0": "entailment", "1": "not_entailment"}
_SNLI_OFFICIAL = json_lines(("sentence1", "sentence2"), "gold_label")
_SNLI_HANDED = tab_separated(("premise", "hypothesis"), "label", names=_NLI)
# How this copy codes its labels is nowhere written; its pairs show it when they are read.
_SNLI_SUBSET = tab_separated(
    ("premise", "hypothesis"),
    "label",
    header=("label", "label again", "premise", "hypothesis"),
    names={"1": "neutral", "2": "contradiction", "3": "entailment"},
)
_MNLI = tab_separated(("sentence1", "sentence2"), "gold_label")
_MNLI_HIDDEN = tab_separated(("sentence1", "sentence2"), None)
_COLA = tab_separated(("sentence",), "label", header=("source", "label", "star", "sentence"))
_GLUE_STSB = tab_separated(("sentence1", "sentence2"), "score")
_GLUE_QQP = tab_separated(("question1", "question2"), "is_duplicate")
_GLUE_QNLI = tab_separated(("question", "sentence"), "label")
_GLUE_RTE = tab_separated(("sentence1", "sentence2"), "label", quoted=False)
_RTE_HANDED = tab_separated(("sentence1", "sentence2"), "label", quoted=True, names=_TWO_WAY)
_SST_SENTENCES = tab_separated(("sentence",), "label", header=("sentence", "label"))
_QQP_HANDED = tab_separated(("q1", "q2"), "label", header=("label", "q1", "q2", "id"))
_SCITAIL_TAB = tab_separated(("premise", "hypothesis"), "label", header=("premise", "hypothesis", "label"))
_SCITAIL_JSON = json_lines(("sentence1", "sentence2"), "gold_label")


def _one(*files: str, read: Reader, remark: str = "") -> Source:
    return Source(files, read, remark)


SETS: tuple[Benchmark, ...] = (
    Benchmark(
        name="snli",
        folders=("SNLI", "snli", "snli_1.0"),
        task="entail",
        metric="accuracy",
        train=(
            _one("snli_1.0_train.jsonl", read=_SNLI_OFFICIAL),
            _one("train_subset.csv", read=_SNLI_SUBSET, remark="18,000 training pairs of 549,367"),
        ),
        validation=(_one("snli_1.0_dev.jsonl", read=_SNLI_OFFICIAL), _one("dev.tsv", read=_SNLI_HANDED)),
        tests={"snli": (_one("snli_1.0_test.jsonl", read=_SNLI_OFFICIAL), _one("test.tsv", read=_SNLI_HANDED))},
        published={"snli": 89.9},
    ),
    Benchmark(
        name="mnli",
        folders=("MNLI", "mnli", "multinli_1.0"),
        task="entail",
        metric="accuracy",
        train=(
            _one("train.tsv", read=_MNLI),
            _one("multinli_1.0_train.jsonl", read=_SNLI_OFFICIAL),
            _one(
                "dev_matched.jsonl",
                read=json_lines(("premise", "hypothesis"), "label"),
                remark="trained on nine tenths of the matched development part",
            ),
        ),
        validation=(
            _one("dev_matched.tsv", read=_MNLI),
            _one("multinli_1.0_dev_matched.jsonl", read=_SNLI_OFFICIAL),
        ),
        tests={
            "mnli-m": (_one("test_matched.tsv", read=_MNLI_HIDDEN),),
            "mnli-mm": (
                _one("test_mismatched.tsv", read=_MNLI_HIDDEN),
                _one("multinli_1.0_dev_mismatched.jsonl", read=_SNLI_OFFICIAL, remark="development part"),
                _one(
                    "dev_mismatched_1000.txt",
                    read=tab_separated(
                        ("premise", "hypothesis"), "label", header=("label", "premise", "hypothesis")
                    ),
                    remark="1,000 tokenised development pairs",
                ),
            ),
        },
        published={"mnli-m": 82.1, "mnli-mm": 81.4},
        glue_files={"mnli-m": "MNLI-m.tsv", "mnli-mm": "MNLI-mm.tsv"},
    ),
    Benchmark(
        name="qnli",
        folders=("QNLI", "qnli"),
        task="entail",
        metric="accuracy",
        train=(
            _one("train.tsv", read=_GLUE_QNLI, remark="second release; the paper used the first"),
            _one(
                "dev.tsv", read=_GLUE_QNLI, remark="trained on nine tenths of the development part, second release"
            ),
        ),
        validation=(_one("dev.tsv", read=_GLUE_QNLI),),
        tests={"qnli": (_one("test.tsv", read=tab_separated(("question", "sentence"), None)),)},
        published={"qnli": 88.1},
        glue_files={"qnli": "QNLI.tsv"},
    ),
    Benchmark(
        name="rte",
        folders=("RTE", "rte"),
        task="entail",
        metric="accuracy",
        train=(_one("train.tsv", read=_RTE_HANDED), _one("train.tsv", read=_GLUE_RTE)),
        validation=(_one("dev.tsv", read=_RTE_HANDED), _one("dev.tsv", read=_GLUE_RTE)),
        tests={"rte": (_one("test.tsv", read=tab_separated(("sentence1", "sentence2"), None)),)},
        published={"rte": 56.0},
        glue_files={"rte": "RTE.tsv"},
    ),
    Benchmark(
        name="scitail",
        folders=("SciTail", "scitail", "SciTailV1.1"),
        task="entail",
        metric="accuracy",
        train=(
            _one("tsv_format/scitail_1.0_train.tsv", read=_SCITAIL_TAB),
            _one("snli_format/scitail_1.0_train.txt", read=_SCITAIL_JSON),
            _one(
                "test.jsonl",
                read=json_lines(("premise", "hypothesis"), "label"),
                remark="trained on nine tenths of the test part",
            ),
        ),
        validation=(
            _one("tsv_format/scitail_1.0_dev.tsv", read=_SCITAIL_TAB),
            _one("snli_format/scitail_1.0_dev.txt", read=_SCITAIL_JSON),
        ),
        tests={
            "scitail": (
                _one("tsv_format/scitail_1.0_test.tsv", read=_SCITAIL_TAB),
                _one("snli_format/scitail_1.0_test.txt", read=_SCITAIL_JSON),
            )
        },
        published={"scitail": 88.3},
    ),
    Benchmark(
        name="race",
        folders=("RACE", "race"),
        task="choice",
        metric="accuracy",
        target=None,
        train=(
            Source(("train/middle", "train/high"), readers.race_folder),
            _one(
                "race_1000_m500_h500.jsonl",
                read=readers.race_lines,
                remark="trained on a sample of 1,000 questions, those on test articles left out",
            ),
        ),
        validation=(Source(("dev/middle", "dev/high"), readers.race_folder),),
        tests={
            "race-m": (
                _one("test/middle", read=readers.race_folder),
                _one("race_middle_test.jsonl", read=readers.race_prompts),
            ),
            "race-h": (_one("test/high", read=readers.race_folder),),
        },
        published={"race-m": 62.9, "race-h": 57.4},
    ),
    Benchmark(
        name="storycloze",
        folders=("StoryCloze", "storycloze", "ROCStories"),
        task="choice",
        metric="accuracy",
        target=None,
        # The original trains on the validation file and holds a fifth of it out.
        train=(
            _one("cloze_test_val__spring2016.csv", read=readers.story_cloze),
            _one("cloze_test_val__spring2016 - cloze_test_ALL_val.csv", read=readers.story_cloze),
        ),
        validation=(),
        tests={
            "storycloze": (
                _one("cloze_test_test__spring2016.csv", read=readers.story_cloze),
                _one("cloze_test_test__spring2016 - cloze_test_ALL_test.csv", read=readers.story_cloze),
            )
        },
        published={"storycloze": 86.5},
        validation_share=0.2,
    ),
    Benchmark(
        name="cola",
        folders=("CoLA", "cola"),
        task="classify",
        metric="matthews",
        also=("accuracy",),
        train=(_one("train.tsv", read=_COLA), _one("in_domain_train.tsv", read=_COLA)),
        validation=(_one("dev.tsv", read=_COLA), Source(("in_domain_dev.tsv", "out_of_domain_dev.tsv"), _COLA)),
        tests={"cola": (_one("test.tsv", read=tab_separated(("sentence",), None)),)},
        published={"cola": 45.4},
        glue_files={"cola": "CoLA.tsv"},
    ),
    Benchmark(
        name="sst2",
        folders=("SST-2", "sst2", "sst2/glue"),
        task="classify",
        metric="accuracy",
        train=(
            _one("train.tsv", read=tab_separated(("sentence",), "label")),
            _one("glue/train.tsv", read=tab_separated(("text_a",), "label")),
            _one("sentences/train.tsv", read=_SST_SENTENCES, remark="6,920 sentences without their phrases"),
        ),
        validation=(
            _one("dev.tsv", read=tab_separated(("sentence",), "label")),
            _one("glue/dev.tsv", read=tab_separated(("text_a",), "label")),
            _one("sentences/dev.tsv", read=_SST_SENTENCES),
        ),
        tests={
            "sst2": (
                _one("test.tsv", read=tab_separated(("sentence",), None)),
                _one("sentences/test.tsv", read=_SST_SENTENCES),
            )
        },
        published={"sst2": 91.3},
        glue_files={"sst2": "SST-2.tsv"},
    ),
    Benchmark(
        name="mrpc",
        folders=("MRPC", "mrpc"),
        task="similarity",
        metric="f1",
        also=("accuracy",),
        train=(_one("train.tsv", read=readers.mrpc), _one("msr_paraphrase_train.txt", read=readers.mrpc)),
        validation=(_one("dev.tsv", read=readers.mrpc),),
        tests={"mrpc": (_one("msr_paraphrase_test.txt", read=readers.mrpc), _one("test.tsv", read=readers.mrpc))},
        published={"mrpc": 82.3},
        glue_files={"mrpc": "MRPC.tsv"},
    ),
    Benchmark(
        name="stsb",
        folders=("STS-B", "stsb", "stsb/original"),
        task="similarity",
        metric="pearson",
        also=("spearman",),
        target="score",
        train=(
            _one("train.tsv", read=_GLUE_STSB),
            _one("original/sts-train.tsv", read=readers.stsb_original),
            _one("glue/train.tsv", read=_GLUE_STSB),
        ),
        validation=(
            _one("dev.tsv", read=_GLUE_STSB),
            _one("original/sts-dev.tsv", read=readers.stsb_original),
            _one("glue/dev.tsv", read=_GLUE_STSB),
        ),
        tests={
            "stsb": (
                _one("original/sts-test.tsv", read=readers.stsb_original),
                _one("test.tsv", read=tab_separated(("sentence1", "sentence2"), None)),
            )
        },
        published={"stsb": 82.0},
        glue_files={"stsb": "STS-B.tsv"},
    ),
    Benchmark(
        name="qqp",
        folders=("QQP", "qqp"),
        task="similarity",
        metric="f1",
        also=("accuracy",),
        train=(
            _one("train.tsv", read=_GLUE_QQP),
            _one("dev_10k.tsv", read=_QQP_HANDED, remark="trained on a balanced development part of 10,000"),
        ),
        validation=(_one("dev.tsv", read=_GLUE_QQP),),
        tests={
            "qqp": (
                _one("test.tsv", read=tab_separated(("question1", "question2"), None)),
                _one("test_10k.tsv", read=_QQP_HANDED, remark="a balanced test part, unlike GLUE's"),
            )
        },
        published={"qqp": 70.3},
        glue_files={"qqp": "QQP.tsv"},
    ),
)
BY_NAME = {benchmark.name: benchmark for benchmark in SETS}


def choose(names: str) -> list[Benchmark]:
    """The sets that `--task-set` names: gpt1 for all twelve, or some by name, separated by commas."""
    if names == "gpt1":
        return list(SETS)
    chosen = []
    for name in names.split(","):
        if name.strip() not in BY_NAME:
            raise UsageError(
                f"--task-set {name.strip()!r} is no set",
                repair=nearest(name.strip(), ["gpt1", *BY_NAME]).capitalize(),
            )
        chosen.append(BY_NAME[name.strip()])
    return chosen


def find(benchmark: Benchmark, data: Path) -> Found | None:
    """The set below `data`, or None where no training rows are there; raises DataError for damaged files."""
    train_sources = _with_hub(benchmark.train, "train")
    folder = next(
        (data / name for name in benchmark.folders if _first(train_sources, data / name) is not None), None
    )
    if folder is None:
        return None
    paths: dict[str, Path] = {}
    remarks: list[str] = []
    train_source = _first(train_sources, folder)
    assert train_source is not None
    train = list(_rows("train", train_source, folder, paths, remarks))
    validation = None
    held = _first(_with_hub(benchmark.validation, "validation"), folder)
    if held is not None and held.files != train_source.files:
        validation = list(_rows("validation", held, folder, paths, remarks))
    tests = {}
    for name, sources in benchmark.tests.items():
        source = _first(_with_hub(sources, name), folder)
        if source is not None:
            tests[name] = list(_rows(name, source, folder, paths, remarks))
    if benchmark.name == "race":
        known = {row.segments[0].strip() for rows in tests.values() for row in rows}
        train = [row for row in train if row.segments[0].strip() not in known]
    return Found(benchmark, train, validation, tests, paths, remarks)


def _with_hub(sources: tuple[Source, ...], part: str) -> tuple[Source, ...]:
    """What was fetched from the hub on purpose comes before a sample that lies there."""
    official = tuple(source for source in sources if not source.remark)
    samples = tuple(source for source in sources if source.remark)
    return (*official, Source((hub.file_name(part),), hub.read), *samples)


def _first(sources: tuple[Source, ...], folder: Path) -> Source | None:
    """The first source whose files are there and begin as its reader expects."""
    for source in sources:
        paths = [folder / name for name in source.files]
        if all(path.exists() for path in paths) and _readable(source, paths[0]):
            return source
    return None


# What a reader meets in a file that is not as its authors released it.
_MALFORMED = (LookupError, ValueError, TypeError, AttributeError, SyntaxError, csv.Error, OSError)


def _readable(source: Source, path: Path) -> bool:
    try:
        next(source.read(path), None)
    except (DataError, *_MALFORMED):
        return False
    return True


def _rows(part: str, source: Source, folder: Path, paths: dict[str, Path], remarks: list[str]) -> Iterator[Raw]:
    if source.remark:
        remarks.append(source.remark)
    number = 0
    for name in source.files:
        paths[part if len(source.files) == 1 else f"{part} {name}"] = folder / name
        try:
            for row in source.read(folder / name):
                number += 1
                yield Raw(row.segments, row.label, number)
        except _MALFORMED as error:
            raise DataError(
                f"{folder / name} cannot be read behind row {number:,}: {type(error).__name__}: {error}",
                repair="Get the set again",
            ) from None


__all__ = ["BY_NAME", "SETS", "Benchmark", "Found", "choose", "find"]
