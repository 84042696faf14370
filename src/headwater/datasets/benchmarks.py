"""The twelve sets of GPT-1 (Radford et al. 2018, table 1): task, metric, the paper's numbers, and file names.

For each part of a set the first source whose files exist is used (`sets`): official distributions first, then
common redistributions. A source with a remark differs from what the paper used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
class Benchmark:
    """One set. `tests` are named as in the table; `also` are metrics in addition to the paper's."""

    name: str
    folders: tuple[str, ...]
    task: Task
    train: tuple[SetFiles, ...]
    validation: tuple[SetFiles, ...]
    tests: Mapping[str, Test]
    metric: Metric = "accuracy"
    also: tuple[Metric, ...] = ()
    target: Target | None = "class"
    validation_share: float = 0.1


_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_NINE_TENTHS = "trained on nine tenths of the {} part"
_TWO_WAY = {"0": "entailment", "1": "not_entailment"}
# This copy of SNLI does not document its label codes; they follow from its pairs.
_NLI_SUBSET = {"1": "neutral", "2": "contradiction", "3": "entailment"}
_NUMBERED, _PAIR, _QUESTIONS = ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")
_ANSWERED = ("question", "sentence")

_SNLI = json_lines(_NUMBERED, "gold_label")
_SNLI_HANDED = tab_separated(_PAIR, "label", names=_NLI)
_SNLI_SUBSET = tab_separated(_PAIR, "label", header=("label", "label again", *_PAIR), names=_NLI_SUBSET)
_MNLI = tab_separated(_NUMBERED, "gold_label")
_MNLI_SAMPLE = tab_separated(_PAIR, "label", header=("label", *_PAIR))
_PAIR_LINES = json_lines(_PAIR, "label")
_SCITAIL = tab_separated(_PAIR, "label", header=(*_PAIR, "label"))
_QNLI = tab_separated(_ANSWERED, "label")
_RTE = tab_separated(_NUMBERED, "label")
_RTE_HANDED = tab_separated(_NUMBERED, "label", quoted=True, names=_TWO_WAY)
_COLA = tab_separated(("sentence",), "label", header=("source", "label", "star", "sentence"))
_SST = tab_separated(("sentence",), "label")
_SST_HANDED = tab_separated(("text_a",), "label")
_SST_SENTENCES = tab_separated(("sentence",), "label", header=("sentence", "label"))
_STSB = tab_separated(_NUMBERED, "score")
_QQP = tab_separated(_QUESTIONS, "is_duplicate")
_QQP_HANDED = tab_separated(("q1", "q2"), "label", header=("label", "q1", "q2", "id"))
_HIDDEN = {texts: tab_separated(texts, None) for texts in (("sentence",), _NUMBERED, _QUESTIONS, _ANSWERED)}


def _of(read: Reader, *files: str, remark: str = "") -> SetFiles:
    return SetFiles(files, read, remark)


def _test(name: str, *sources: SetFiles, glue: str = "") -> dict[str, Test]:
    return {name: Test(gpt1(name), sources, glue)}


SETS: tuple[Benchmark, ...] = (
    Benchmark(
        "snli",
        ("SNLI", "snli", "snli_1.0"),
        "entail",
        train=(
            _of(_SNLI, "snli_1.0_train.jsonl"),
            _of(_SNLI_SUBSET, "train_subset.csv", remark="18,000 training pairs of 549,367"),
        ),
        validation=(_of(_SNLI, "snli_1.0_dev.jsonl"), _of(_SNLI_HANDED, "dev.tsv")),
        tests=_test("snli", _of(_SNLI, "snli_1.0_test.jsonl"), _of(_SNLI_HANDED, "test.tsv")),
    ),
    Benchmark(
        "mnli",
        ("MNLI", "mnli", "multinli_1.0"),
        "entail",
        train=(
            _of(_MNLI, "train.tsv"),
            _of(_SNLI, "multinli_1.0_train.jsonl"),
            _of(_PAIR_LINES, "dev_matched.jsonl", remark=_NINE_TENTHS.format("matched development")),
        ),
        validation=(_of(_MNLI, "dev_matched.tsv"), _of(_SNLI, "multinli_1.0_dev_matched.jsonl")),
        tests=_test("mnli-m", _of(_HIDDEN[_NUMBERED], "test_matched.tsv"), glue="MNLI-m.tsv")
        | _test(
            "mnli-mm",
            _of(_HIDDEN[_NUMBERED], "test_mismatched.tsv"),
            _of(_SNLI, "multinli_1.0_dev_mismatched.jsonl", remark="development part"),
            _of(_MNLI_SAMPLE, "dev_mismatched_1000.txt", remark="1,000 tokenised development pairs"),
            glue="MNLI-mm.tsv",
        ),
    ),
    Benchmark(
        "qnli",
        ("QNLI", "qnli"),
        "entail",
        train=(
            _of(_QNLI, "train.tsv", remark="second release; the paper used the first"),
            _of(_QNLI, "dev.tsv", remark=_NINE_TENTHS.format("development") + ", second release"),
        ),
        validation=(_of(_QNLI, "dev.tsv"),),
        tests=_test("qnli", _of(_HIDDEN[_ANSWERED], "test.tsv"), glue="QNLI.tsv"),
    ),
    Benchmark(
        "rte",
        ("RTE", "rte"),
        "entail",
        train=(_of(_RTE_HANDED, "train.tsv"), _of(_RTE, "train.tsv")),
        validation=(_of(_RTE_HANDED, "dev.tsv"), _of(_RTE, "dev.tsv")),
        tests=_test("rte", _of(_HIDDEN[_NUMBERED], "test.tsv"), glue="RTE.tsv"),
    ),
    Benchmark(
        "scitail",
        ("SciTail", "scitail", "SciTailV1.1"),
        "entail",
        train=(
            _of(_SCITAIL, "tsv_format/scitail_1.0_train.tsv"),
            _of(_SNLI, "snli_format/scitail_1.0_train.txt"),
            _of(_PAIR_LINES, "test.jsonl", remark=_NINE_TENTHS.format("test")),
        ),
        validation=(
            _of(_SCITAIL, "tsv_format/scitail_1.0_dev.tsv"),
            _of(_SNLI, "snli_format/scitail_1.0_dev.txt"),
        ),
        tests=_test(
            "scitail",
            _of(_SCITAIL, "tsv_format/scitail_1.0_test.tsv"),
            _of(_SNLI, "snli_format/scitail_1.0_test.txt"),
        ),
    ),
    Benchmark(
        "race",
        ("RACE", "race"),
        "choice",
        target=None,
        train=(
            _of(readers.race_folder, "train/middle", "train/high"),
            _of(
                readers.race_lines,
                "race_1000_m500_h500.jsonl",
                remark="trained on a sample of 1,000 questions, those on test articles left out",
            ),
        ),
        validation=(_of(readers.race_folder, "dev/middle", "dev/high"),),
        tests=_test(
            "race-m", _of(readers.race_folder, "test/middle"), _of(readers.race_prompts, "race_middle_test.jsonl")
        )
        | _test("race-h", _of(readers.race_folder, "test/high")),
    ),
    Benchmark(
        "storycloze",
        ("StoryCloze", "storycloze", "ROCStories"),
        "choice",
        target=None,
        # The original trains on the validation file and holds a fifth of it out.
        train=(
            _of(readers.story_cloze, "cloze_test_val__spring2016.csv"),
            _of(readers.story_cloze, "cloze_test_val__spring2016 - cloze_test_ALL_val.csv"),
        ),
        validation=(),
        tests=_test(
            "storycloze",
            _of(readers.story_cloze, "cloze_test_test__spring2016.csv"),
            _of(readers.story_cloze, "cloze_test_test__spring2016 - cloze_test_ALL_test.csv"),
        ),
        validation_share=0.2,
    ),
    Benchmark(
        "cola",
        ("CoLA", "cola"),
        "classify",
        train=(_of(_COLA, "train.tsv"), _of(_COLA, "in_domain_train.tsv")),
        validation=(_of(_COLA, "dev.tsv"), _of(_COLA, "in_domain_dev.tsv", "out_of_domain_dev.tsv")),
        tests=_test("cola", _of(_HIDDEN["sentence",], "test.tsv"), glue="CoLA.tsv"),
        metric="matthews",
        also=("accuracy",),
    ),
    Benchmark(
        "sst2",
        ("SST-2", "sst2", "sst2/glue"),
        "classify",
        train=(
            _of(_SST, "train.tsv"),
            _of(_SST_HANDED, "glue/train.tsv"),
            _of(_SST_SENTENCES, "sentences/train.tsv", remark="6,920 sentences without their phrases"),
        ),
        validation=(
            _of(_SST, "dev.tsv"),
            _of(_SST_HANDED, "glue/dev.tsv"),
            _of(_SST_SENTENCES, "sentences/dev.tsv"),
        ),
        tests=_test(
            "sst2",
            _of(_HIDDEN["sentence",], "test.tsv"),
            _of(_SST_SENTENCES, "sentences/test.tsv"),
            glue="SST-2.tsv",
        ),
    ),
    Benchmark(
        "mrpc",
        ("MRPC", "mrpc"),
        "similarity",
        train=(_of(readers.mrpc, "train.tsv"), _of(readers.mrpc, "msr_paraphrase_train.txt")),
        validation=(_of(readers.mrpc, "dev.tsv"),),
        tests=_test(
            "mrpc",
            _of(readers.mrpc, "msr_paraphrase_test.txt"),
            _of(readers.mrpc, "test.tsv"),
            glue="MRPC.tsv",
        ),
        metric="f1",
        also=("accuracy",),
    ),
    Benchmark(
        "stsb",
        ("STS-B", "stsb", "stsb/original"),
        "similarity",
        target="score",
        train=(
            _of(_STSB, "train.tsv"),
            _of(readers.stsb_original, "original/sts-train.tsv"),
            _of(_STSB, "glue/train.tsv"),
        ),
        validation=(
            _of(_STSB, "dev.tsv"),
            _of(readers.stsb_original, "original/sts-dev.tsv"),
            _of(_STSB, "glue/dev.tsv"),
        ),
        tests=_test(
            "stsb",
            _of(readers.stsb_original, "original/sts-test.tsv"),
            _of(_HIDDEN[_NUMBERED], "test.tsv"),
            glue="STS-B.tsv",
        ),
        metric="pearson",
        also=("spearman",),
    ),
    Benchmark(
        "qqp",
        ("QQP", "qqp"),
        "similarity",
        train=(
            _of(_QQP, "train.tsv"),
            _of(_QQP_HANDED, "dev_10k.tsv", remark="trained on a balanced development part of 10,000"),
        ),
        validation=(_of(_QQP, "dev.tsv"),),
        tests=_test(
            "qqp",
            _of(_HIDDEN[_QUESTIONS], "test.tsv"),
            _of(_QQP_HANDED, "test_10k.tsv", remark="a balanced test part, unlike GLUE's"),
            glue="QQP.tsv",
        ),
        metric="f1",
        also=("accuracy",),
    ),
)
