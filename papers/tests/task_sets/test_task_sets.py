"""The twelve sets: official files in small, and the available files with their traps."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DataError, ResourceError, UsageError
from headwater.finetuning import FinetuneConfig, Raw
from headwater.storage import open_folder
from headwater_papers.task_sets import hub, read_questions, readers
from headwater_papers.task_sets.benchmarks import SETS
from headwater_papers.task_sets.runs import run_sets
from headwater_papers.task_sets.sets import BY_NAME, DIVIDED, choose, divide, find, separate_texts

# Set -> available parts: training, validation, tests (data/MANIFEST.md).
AVAILABLE = {
    "snli": (18_000, 9_842, {"snli": 9_824}),
    "mnli": (8_833, 982, {"mnli-mm": 1_000}),
    "qnli": (3_277, 547, {"qnli": 1_639}),
    "rte": (2_490, 277, {}),
    "scitail": (1_275, 213, {"scitail": 638}),
    "storycloze": (1_871, None, {"storycloze": 1_871}),
    "cola": (8_551, 1_043, {}),
    "sst2": (67_349, 872, {"sst2": 1_821}),
    "mrpc": (4_076, None, {"mrpc": 1_725}),
    "stsb": (5_749, 1_500, {"stsb": 1_379}),
    "qqp": (9_000, 1_000, {"qqp": 10_000}),
    "race": (862, 96, {"race-m": 1_436}),
}


@pytest.mark.parametrize("name", AVAILABLE)
def test_the_available_sets_are_read_whole(data: Path, name: str) -> None:
    found = find(BY_NAME[name], data / "finetune")
    assert found is not None
    train, validation, tests = AVAILABLE[name]
    assert len(found.train) == train
    assert (None if found.validation is None else len(found.validation)) == validation
    assert {part: len(rows) for part, rows in found.tests.items()} == tests
    for row in [*found.train, *(found.validation or []), *(r for rows in found.tests.values() for r in rows)]:
        assert row.label is not None
        assert all(row.segments[2:] if BY_NAME[name].task == "choice" else row.segments)


def test_labels_match_their_texts(data: Path) -> None:
    """Entailed hypotheses share more words with their premises than contradictions do."""

    def overlap(rows: list[Raw], label: str) -> float:
        shares = []
        for row in rows:
            if row.label == label:
                premise, hypothesis = (set(text.lower().split()) for text in row.segments)
                shares.append(len(premise & hypothesis) / len(hypothesis))
        return sum(shares) / len(shares)

    found = find(BY_NAME["snli"], data / "finetune")
    assert found is not None
    for rows in (found.train, found.tests["snli"]):
        entailed, neutral, denied = (overlap(rows, x) for x in ("entailment", "neutral", "contradiction"))
        assert entailed > max(neutral, denied) + 0.1
    rte = find(BY_NAME["rte"], data / "finetune")
    assert rte is not None
    assert overlap(rte.train, "entailment") > overlap(rte.train, "not_entailment")
    mrpc = find(BY_NAME["mrpc"], data / "finetune")
    assert mrpc is not None
    assert Counter(row.label for row in mrpc.train) == {"1": 2_753, "0": 1_323}
    assert mrpc.train[0].segments[0].startswith('Amrozi accused his brother, whom he called "the witness"')


@pytest.mark.parametrize("name", ["mnli", "qnli", "scitail", "race", "qqp"])
def test_parts_of_one_file_share_no_text(data: Path, name: str) -> None:
    """SciTail has twelve premises for a hypothesis, MNLI three hypotheses for a premise."""
    found = find(BY_NAME[name], data / "finetune")
    assert found is not None
    assert found.validation is not None
    assert DIVIDED in found.remarks
    parts = [found.train, found.validation]
    if name in ("qnli", "scitail"):  # the tests of the others are files of their own
        parts.append(found.tests[name])
    texts = [{text for row in rows for text in separate_texts(row, BY_NAME[name].task)} for rows in parts]
    assert all(one.isdisjoint(other) for one, other in combinations(texts, 2))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=1, max_size=80))
def test_divided_rows_are_all_there_and_share_no_text(pairs: list[tuple[int, int]]) -> None:
    rows = [Raw((f"premise {a}", f"hypothesis {b}"), "x", n) for n, (a, b) in enumerate(pairs)]
    parts = divide(rows, "entail", {"train": 0.6, "validation": 0.1, "test": 0.3})
    assert sorted((row for part in parts.values() for row in part), key=lambda row: row.row) == rows
    for one, other in combinations(parts.values(), 2):
        assert {t for row in one for t in row.segments}.isdisjoint(t for row in other for t in row.segments)
    assert parts["train"]
    alone = divide([Raw((str(n),), "x", n) for n in range(100)], "classify", {"train": 0.9, "validation": 0.1})
    assert len(alone["validation"]) == 10


def test_no_race_training_question_is_about_a_test_article(data: Path) -> None:
    found = find(BY_NAME["race"], data / "finetune")
    assert found is not None
    assert not {r.segments[0] for r in found.train} & {r.segments[0] for r in found.tests["race-m"]}


GLUE_HEADERS = {
    "QNLI": ("index\tquestion\tsentence\tlabel", "0\tq {}\ts\t{}", ("entailment", "not_entailment")),
    "RTE": ("index\tsentence1\tsentence2\tlabel", "0\tp {}\th\t{}", ("entailment", "not_entailment")),
    "SST-2": ("sentence\tlabel", "text {}\t{}", ("0", "1")),
    "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\ta {}\tb\t{}", ("0", "1")),
    "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{1}\t1\t2\ta {0}\tb", ("0", "1")),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tg\tf\ty\t1\tx\ty\ta {}\tb\t{}",
        ("0.000", "4.500"),
    ),
}
HIDDEN = {
    "QNLI": ("index\tquestion\tsentence", "{}\tq\ts"),
    "RTE": ("index\tsentence1\tsentence2", "{}\tp\th"),
    "SST-2": ("index\tsentence", "{}\ttext"),
    "QQP": ("id\tquestion1\tquestion2", "{}\ta\tb"),
    "MRPC": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", "{}\t1\t2\ta\tb"),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "{}\tg\tf\ty\t1\tx\ty\ta\tb",
    ),
}


def official(folder: Path, name: str) -> None:
    """A small set in GLUE's own layout, its test labels hidden."""
    (folder / name).mkdir(parents=True)
    header, line, labels = GLUE_HEADERS[name]
    for part in ("train", "dev"):
        lines = [line.format(f"{part} {n}", labels[n % 2]) for n in range(6)]
        (folder / name / f"{part}.tsv").write_text("\n".join([header, *lines]) + "\n")
    header, line = HIDDEN[name]
    (folder / name / "test.tsv").write_text("\n".join([header, *(line.format(n) for n in range(3))]) + "\n")


def test_official_glue_files_train_and_write_the_servers_files(base: Path, tmp_path: Path) -> None:
    for name in GLUE_HEADERS:
        official(tmp_path / "glue", name)
    config = FinetuneConfig(steps=1, batch_size=4, precision="fp32")
    table, text = run_sets(config, "gpt1", tmp_path / "glue", model=base, out=tmp_path / "out")
    assert {row["task"] for row in table["rows"]} == {"qnli", "rte", "sst2", "qqp", "mrpc", "stsb"}
    assert "snli" in table["missing"]
    for name in GLUE_HEADERS:
        lines = (tmp_path / "out" / "glue" / f"{name}.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert len(lines) == 4
    qnli = (tmp_path / "out" / "glue" / "QNLI.tsv").read_text().splitlines()
    assert qnli[1].split("\t")[1] in {"entailment", "not_entailment"}
    written = (tmp_path / "out" / "table.md").read_text()
    assert written == text + "\n"
    assert "82.3" in written  # the paper's MRPC is next to ours
    again, _ = run_sets(config, "gpt1", tmp_path / "glue", model=base, out=tmp_path / "out")
    assert again == table


def test_a_set_has_the_papers_epochs_by_default(base: Path, tmp_path: Path) -> None:
    official(tmp_path / "glue", "RTE")
    config = FinetuneConfig(batch_size=4, precision="fp32")
    run_sets(config, "rte", tmp_path / "glue", model=base, out=tmp_path / "out")
    trained = open_folder(tmp_path / "out" / "rte").config
    assert trained["epochs"] == 3
    run_sets(config.model_copy(update={"epochs": 1.0}), "rte", tmp_path / "glue", model=base, out=tmp_path / "one")
    assert open_folder(tmp_path / "one" / "rte").config["epochs"] == 1


def test_official_race_snli_cloze_and_cola_files(tmp_path: Path) -> None:
    article = {"article": "a", "questions": ["q _ ?"], "options": [["w", "x", "y", "z"]], "answers": ["C"]}
    (tmp_path / "middle").mkdir()
    (tmp_path / "middle" / "1.txt").write_text(json.dumps(article))
    assert list(read_questions(tmp_path / "middle")) == [Raw(("a", "q _ ?", "w", "x", "y", "z"), 2, 1)]
    for letter in ("", "AB", "E"):  # an empty letter does not mean the first answer
        (tmp_path / "middle" / "1.txt").write_text(json.dumps(article | {"answers": [letter]}))
        with pytest.raises(ValueError, match=f"is '{letter}', expected a letter from A to D"):
            list(read_questions(tmp_path / "middle"))
    pairs = [{"sentence1": "p", "sentence2": "h", "gold_label": label} for label in ("neutral", "-")]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    found = list(readers.json_lines(("sentence1", "sentence2"), "gold_label")(tmp_path / "s.jsonl"))
    assert [row.label for row in found] == ["neutral", None]
    header = (
        "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,Quiz1,Quiz2,AnswerRightEnding"
    )
    (tmp_path / "c.csv").write_text(f'{header}\n{header}\n1,a.,"b, c.",d.,e.,x,y,2\n')
    assert list(read_questions(tmp_path / "c.csv")) == [Raw(("a. b, c. d. e.", "", "x", "y"), 1, 1)]
    (tmp_path / "c.csv").write_text('1,a.,b.,c.,d.,x,"y,2\n2,a.,b.,c.,d.,x,y,2\n')
    with pytest.raises(csv.Error, match="unexpected end"):
        list(read_questions(tmp_path / "c.csv"))
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text('gj04\t1\t\tA "quote.\ngj04\t0\t*\tBad it.\n')
    (tmp_path / "CoLA" / "dev.tsv").write_text("gj04\t1\t\tGood.\n")
    cola = find(BY_NAME["cola"], tmp_path)
    assert cola is not None
    assert cola.train == [Raw(('A "quote.',), "1", 1), Raw(("Bad it.",), "0", 2)]


def test_broken_rows_of_qqp_are_omitted_and_counted(tmp_path: Path) -> None:
    official(tmp_path, "QQP")
    with (tmp_path / "QQP" / "train.tsv").open("a") as handle:
        handle.write('7\t1\t2\tWas he real?"\n"\tWas he a real figure?\t0\n8\t1\t2\ta\tb\t1\n')
    found = find(BY_NAME["qqp"], tmp_path)
    assert found is not None
    assert [row.row for row in found.train] == list(range(1, 8))
    assert found.train[-1] == Raw(("a", "b"), "1", 7)
    assert found.remarks == ["2 lines of train with too few fields left out"]


def test_a_set_that_is_damaged_from_its_first_row_is_not_missing(tmp_path: Path) -> None:
    assert find(BY_NAME["cola"], tmp_path) is None
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("gj04\t1\n")
    with pytest.raises(DataError, match=r"train\.tsv row 1 has 2 fields"):
        find(BY_NAME["cola"], tmp_path)
    (tmp_path / "CoLA" / "train.tsv").write_text("gj04\t1\t\tGood.\n")
    (tmp_path / "CoLA" / "dev.tsv").write_text("<html>")
    with pytest.raises(DataError, match=r"dev\.tsv row 1 has 1 field"):
        find(BY_NAME["cola"], tmp_path)


def test_a_truncated_part_must_be_fetched_again(tmp_path: Path) -> None:
    part = tmp_path / "rte" / hub.file_name("train")
    part.parent.mkdir()
    part.write_text('{"segments": ["a", "b"], "label": "entailment"}\n{"segments": ["a"', encoding="utf-8")
    with pytest.raises(DataError, match=r"hub-train\.jsonl row 2 is not JSON.*\. Get the set again\."):
        find(BY_NAME["rte"], tmp_path)
    part.write_text('{"segments": ["a", "b"], "label": "entailment"}\n{"segments": ["a"], "label": 0}\n')
    with pytest.raises(DataError, match=r"after row 1: ValueError: the next one has 1 text"):
        find(BY_NAME["rte"], tmp_path)


def test_a_fetched_set_has_the_remark_of_its_release(tmp_path: Path) -> None:
    (tmp_path / "QNLI").mkdir()
    for part in ("train", "validation", "qnli"):
        row = {"segments": ["a question?", f"sentence of {part}"], "label": "entailment"}
        (tmp_path / "QNLI" / hub.file_name(part)).write_text(json.dumps(row) + "\n", encoding="utf-8")
    found = find(BY_NAME["qnli"], tmp_path)
    assert found is not None
    assert found.remarks == ["second release; the paper used the first"]


def test_an_unknown_set_and_a_folder_without_sets_are_refused() -> None:
    assert len(SETS) == len(BY_NAME) == 12
    with pytest.raises(UsageError, match="'cola'"):
        choose("colla")
    with pytest.raises(DataError, match="has none"):
        run_sets(FinetuneConfig(), "rte", Path("/nonexistent"), model=Path("m"), out=Path("o"))


def test_sets_are_fetched_by_name_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    tables = {
        "all/train": {"article": ["a"], "question": ["q"], "options": [["w", "x", "y", "z"]], "answer": ["D"]},
        "middle/test": {"article": ["b"], "question": ["q"], "options": [["w", "x", "y", "z"]], "answer": ["A"]},
        "rte/train": {"sentence1": ["p", "p"], "sentence2": ["h", "h"], "label": [0, 1]},
        "rte/test": {"sentence1": ["p"], "sentence2": ["h"], "label": [-1]},
    }
    same = {"all/validation": "all/train", "high/test": "middle/test", "rte/validation": "rte/train"}
    for place in [*tables, *same]:
        file = tmp_path / "remote" / f"{place}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(tables[same.get(place, place)]), file)
    asked = []

    def download(repository: str, file: str, repo_type: str) -> str:
        asked.append(file)
        return str(tmp_path / "remote" / file)

    listed = [f"{place}-00000-of-00001.parquet" for place in [*tables, *same]]
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda *_, **__: listed)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    fetched = {name: BY_NAME[name].hub for name in ("race", "rte")}
    assert fetched["race"] is not None
    assert fetched["rte"] is not None
    hub.fetch(fetched["race"], tmp_path / "data" / "RACE")
    hub.fetch(fetched["rte"], tmp_path / "data" / "RTE")
    race, rte = (find(BY_NAME[name], tmp_path / "data") for name in ("race", "rte"))
    assert race is not None
    assert rte is not None
    assert race.train == [Raw(("a", "q", "w", "x", "y", "z"), 3, 1)]
    assert set(race.tests) == {"race-m", "race-h"}
    assert [row.label for row in rte.train] == ["entailment", "not_entailment"]
    assert rte.tests["rte"] == [Raw(("p", "h"), None, 1)]
    assert len(asked) == 7
    assert asked[-1].startswith("rte/train")  # until then the set is not taken for whole
    hub.fetch(fetched["rte"], tmp_path / "data" / "RTE")
    assert len(asked) == 7  # what is there is not fetched again
    assert BY_NAME["storycloze"].hub is None


def test_without_a_network_fetching_names_the_folder_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def refuse(*_: object, **__: object) -> list[str]:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", refuse)
    cola = BY_NAME["cola"].hub
    assert cola is not None
    with pytest.raises(ResourceError, match="put the set's own files"):
        hub.fetch(cola, tmp_path / "CoLA")
