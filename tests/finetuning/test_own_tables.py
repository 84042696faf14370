"""A user's own table: what is found in it, what is said of it, and one clear message for each mistake."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import DataError, UsageError
from headwater.finetuning import Labels, Raw, TaskName
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.read import Columns, read_table
from headwater.finetuning.rows.row import Usable, usable
from headwater.finetuning.rows.split import also_trained_on, copies_of, describe, keys_of, split
from headwater.reading import open_table

ROWS = [('a "quoted", text', "yes"), ("two\twords", "no"), ("자\u2028막", "yes")]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path: Path, task: TaskName = "classify", **columns: Any) -> list[Raw]:
    table = read_table(path, task, Columns(**columns))
    found = list(table.rows)
    for error in table.unread.first:
        raise error
    return found


def test_the_same_table_in_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    quoted = 'review,label\r\n"a ""quoted"", text",yes\r\n"two\twords",no\r\n자\u2028막,yes\r\n'
    files = [
        write(tmp_path / "t.csv", "\ufeff" + quoted),
        write(
            tmp_path / "t.jsonl",
            "\n".join(json.dumps({"review": t, "label": c}, ensure_ascii=False) for t, c in ROWS),
        ),
        tmp_path / "t.parquet",
    ]
    pq.write_table(pa.table({"review": [t for t, _ in ROWS], "label": [c for _, c in ROWS]}), files[2])
    for file in files:
        found = rows(file)
        assert [(r.segments[0], r.label) for r in found] == ROWS
        assert [r.row for r in found] == [1, 2, 3]


def test_quotes_within_tab_separated_fields_are_literal(tmp_path: Path) -> None:
    file = write(tmp_path / "t.tsv", 'text\tlabel\n"so" he said\ta\n"she said ""so"""\tb\n')
    assert [r.segments[0] for r in rows(file)] == ['"so" he said', 'she said "so"']


def test_columns_are_recognised_or_named(tmp_path: Path) -> None:
    pairs = write(tmp_path / "p.csv", "id,sentence1,sentence2,gold_label\n1,a,b,x\n")
    assert rows(pairs, "entail")[0].segments == ("a", "b")
    assert rows(pairs, "entail", premise="sentence2", hypothesis="id")[0].segments == ("b", "1")
    separate = write(tmp_path / "c.csv", "context,question,choice_b,choice_a,label\nc,q,second,first,1\n")
    assert rows(separate, "choice")[0].segments == ("c", "q", "first", "second")
    names = [f"answer{number}" for number in range(1, 11)]
    ten = write(tmp_path / "ten.csv", f"question,{','.join(names)},label\nq,{','.join(names)},1\n")
    assert rows(ten, "choice")[0].segments[2:] == tuple(names)
    listed = write(tmp_path / "c.jsonl", '{"question": "q", "options": ["x", "y"], "label": "y"}')
    found = rows(listed, "choice")
    assert found[0].segments == ("", "q", "x", "y")
    labels = learn_labels(found, "choice", None, "it")
    assert [labels.target_of(row, "it") for row in found] == [1.0]
    korean = write(tmp_path / "ko.csv", unicodedata.normalize("NFD", "번호,후기,별점\n1,좋아요,5\n"))
    (row,) = rows(korean, "classify")
    assert (unicodedata.normalize("NFC", row.segments[0]), row.label) == ("좋아요", "5")
    cased = write(tmp_path / "cased.csv", "Review,label\na,b\n")
    with pytest.raises(DataError, match=r"Did you mean 'Review'\?"):
        rows(cased, "classify", text="Reveiw")


def test_numbered_answers_count_from_what_the_training_rows_show() -> None:
    one = [Raw(("", "q", "x", "y"), number, number) for number in (1, 2)]
    assert learn_labels(one, "choice", None, "it").first_answer == 1
    zero = [Raw(("", "q", "x", "y"), number, number) for number in (0, 1)]
    assert learn_labels(zero, "choice", None, "it").first_answer == 0
    middle = [Raw(("", "q", "x", "y", "z"), number, number) for number in (1, 2)]
    assert learn_labels(middle, "choice", None, "it").first_answer == 0, "no label is the number of answers"


def test_a_label_names_an_answer_by_number_letter_or_text() -> None:
    labels = Labels(target="answer", first_answer=1)
    answers = ("", "q", "w", "x")
    for label in (2, "2", "B", "b", "x"):
        assert [labels.matches(Raw(answers, label, 1), answer) for answer in (1, 2)] == [False, True]
    assert not labels.matches(Raw(answers, "y", 1), 1)
    assert Labels(target="class", names=["0", "1"]).matches(Raw(("t",), 1.0, 1), "1")


def test_class_names_are_kept_and_equal_numbers_agree() -> None:
    labels = learn_labels([Raw(("a",), x, 1) for x in (10, "9", 2.0)], "classify", None, "it")
    assert labels.names == ["2", "9", "10"]
    assert labels.target_of(Raw(("a",), "10.0", 1), "it") == 2.0
    assert learn_labels([Raw(("a",), x, 1) for x in ("01", "1")], "classify", None, "it").names == ["01", "1"]


def test_a_label_that_differs_in_every_row_is_not_a_class() -> None:
    with pytest.raises(DataError, match=r"another label in each of its 20 labelled rows.*--label"):
        learn_labels([Raw(("a",), f"T{number}", number) for number in range(20)], "classify", None, "it")


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        ("t.csv", "body_text,label\na,b\n", "classify", "has no column for the text.*'body_text', 'label'"),
        ("t.csv", "번호,이야기 글,라벨\n1,a,b\n", "classify", "Name it: --text COLUMN"),
        ("t.csv", "", "classify", "is empty"),
        ("t.csv", "text,label\na,b\nc\n", "classify", "row 2 has 1 field,"),
        ("t.csv", "text,label\na,b\nc,d,e\n", "classify", "row 2 has 3 fields,"),
        ("t.csv", b"PK\x03\x04\x00\x00\x00", "classify", "binary"),
        ("t.ods", b"PK", "classify", "ending '.ods'.*Save the table as .xlsx or CSV"),
        ("t.parquet", b"PAR1 no", "classify", "cannot be read as Parquet"),
        ("t.jsonl", '{"text": "a", "label": "b"}\n{"text"', "classify", "line 2 is not JSON"),
        ("t.jsonl", '{"text": ["a"], "label": "b"}', "classify", "row 1: column 'text' has a list"),
        (
            "t.jsonl",
            '{"question": "q", "answers": ["x", ""], "label": 0}',
            "choice",
            "row 1: answer 2 of 2 is missing",
        ),
        ("t.jsonl", '{"question": "q", "answers": "x", "label": 0}', "choice", "row 1: 'answers' is not a list"),
        ("t.csv", "text,text\na,b\n", "classify", "two columns named 'text'"),
    ],
)
def test_a_bad_file_is_named_with_its_row(
    tmp_path: Path, name: str, content: str | bytes, task: TaskName, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        rows(write(tmp_path / name, content), task)


def test_a_dash_is_a_class_of_single_texts_only(tmp_path: Path) -> None:
    """SNLI marks pairs without a majority label with it; for single texts it is a user's label, as "+" is."""
    pairs = write(tmp_path / "pairs.csv", "first,second,label\na,b,4.5\nc,d,-\n")
    assert [[row.label for row in rows(pairs, task)] for task in ("similarity", "entail")] == [["4.5", None]] * 2
    single = write(tmp_path / "single.csv", "text,label\na,+\nb,-\n")
    assert [row.label for row in rows(single, "classify")] == ["+", "-"]


def test_a_folder_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder; expected a file"):
        rows(tmp_path, "classify")


@pytest.mark.parametrize(
    ("training", "validation", "message"),
    [
        (["a", "a"], [], "only one class: 'a' in 2 labelled rows"),
        (["a", "b"], ["a", "c"], "row 2 has the label 'c', which training did not have; it had 'a', 'b'"),
        (
            ["0", "1"],
            ["0", "positive"],
            "row 2 has the label 'positive', a word, but the training labels are num",
        ),
        (["no", "yes"], ["1"], "row 1 has the label '1', a number, but the training labels are words"),
        (["1", "other"], ["2"], "row 1 has the label '2', which training did not have; it had '1', 'other'"),
    ],
)
def test_labels_that_do_not_fit_are_named(training: list[str], validation: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        labels = learn_labels(
            [Raw(("t",), x, n) for n, x in enumerate(training, 1)], "classify", None, "train.csv"
        )
        for number, label in enumerate(validation, 1):
            labels.target_of(Raw(("t",), label, number), "validation.csv")


def test_notes_before_training_count_the_rows() -> None:
    train = [
        Raw(("a",), "x", 1),
        Raw(("",), "x", 2),
        Raw(("a",), "y", 3),
        Raw(("b",), None, 4),
        Raw(("c",), "y", 5),
    ]
    validation = [Raw(("c",), "x", 1), Raw(("d",), "x", 2)]
    checked = usable(train, "classify", "train")
    assert (len(checked.rows), checked.empty, checked.unlabelled) == (3, 1, 1)
    labels = Labels(target="class", names=["x", "y"])
    targets = labels.targets(checked.rows, "it")
    parts = {"training": checked, "validation": usable(validation, "classify", "validation")}
    classes, notes = describe(parts, labels, targets, [])
    assert classes == {"x": 1, "y": 2}
    assert "skipped in training: 1 row without text, 1 without a label" in notes
    copied, contradicting = copies_of(checked.rows, keys_of(checked.rows), targets, labels)
    assert copied.startswith("1 training rows repeat the text of another")
    assert "row 3 and row 1 first" in contradicting
    assert also_trained_on("test", validation, {"d"}) == [
        "1 of 2 test rows are also in training, equal but for case, white space and punctuation (the first is row "
        "2): metrics on them are too good"
    ]
    assert any("1 row without text, 1 without a label" in note for note in notes)
    assert any("only one training row: 'x'" in note for note in notes)
    for none, message in (([], "t has no row;"), (train[1:2], "t has no usable row: 1 without text")):
        with pytest.raises(DataError, match=message):
            usable(none, "classify", "t")


def test_column_names_in_the_middle_of_a_table_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "two.csv", "text,label\ngood,1\ntext,label\nbad,0\n")
    with pytest.raises(DataError, match=r"two\.csv row 2 repeats the names of the columns"):
        rows(path)


@pytest.mark.parametrize(
    ("scores", "levels"),
    [
        ([1, 2.5, 5], [1, 2, 3, 4, 5]),
        ([0.1, 0.75], [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([0, 1_000], [0, 200, 400, 600, 800, 1_000]),
    ],
)
def test_scores_have_the_levels_of_their_range(scores: list[float], levels: list[float]) -> None:
    given = [Raw(("a", "b"), score, number) for number, score in enumerate(scores)]
    assert learn_labels(given, "similarity", "score", "it").levels == levels


def test_the_split_keeps_classes_and_equal_texts_together() -> None:
    labels = Labels(target="class", names=["x", "y"])
    given = [Raw((f"text {n // 2}",), "x" if n < 30 else "y", n) for n in range(40)]

    def sides(rows: list[Raw], share: float) -> tuple[list[Raw], list[Raw]]:
        places = split(rows, labels.targets(rows, "it"), labels, share=share, seed=3, name="it")
        return [rows[place] for place in places[0]], [rows[place] for place in places[1]]

    train, held = sides(given, 0.1)
    assert sorted([*train, *held], key=lambda r: r.row) == given
    assert not {r.segments for r in train} & {r.segments for r in held}
    assert {r.label for r in held} == {"x", "y"}
    assert sides(given, 0.1) == (train, held)
    train, held = sides([Raw((f"{n}",), "x" if n < 2 else "y", n) for n in range(12)], 0.8)
    assert {r.label for r in train} == {r.label for r in held} == {"x", "y"}


def test_columns_of_training_precede_likely_names(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "text,review,label,sentiment\nid-1,good,x,yes\n")
    trained = Columns(text="review", label="sentiment")
    (row,) = read_table(file, "classify", Columns(), trained=trained)[1]
    assert (row.segments, row.label) == (("good",), "yes")
    (row,) = read_table(file, "classify", Columns(text="text"), trained=trained)[1]
    assert row.segments == ("id-1",)
    other = write(tmp_path / "o.csv", "review\nfine\n")
    (row,) = read_table(other, "classify", Columns(), trained=trained, need_label=False)[1]
    assert (row.segments, row.label) == (("fine",), None)
    choice = write(tmp_path / "c.csv", "story,question,choice_a,choice_b\ns,q,x,y\n")
    without = Columns(context="", question="question", answers=["choice_a", "choice_b"])
    (row,) = read_table(choice, "choice", Columns(), trained=without, need_label=False)[1]
    assert row.segments == ("", "q", "x", "y")
    bare = write(tmp_path / "b.csv", "question,choice_a,choice_b\nq,x,y\n")
    with pytest.raises(DataError, match="no column for the context of task choice, which was 'story' in training"):
        list(read_table(bare, "choice", Columns(), trained=Columns(context="story"), need_label=False)[1])


def test_columns_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "review,label\ngood,yes\n")
    with pytest.raises(UsageError, match="classify does not read a column 'premise'; expected text or label"):
        rows(file, premise="review")
    with pytest.raises(DataError, match="the column 'review' cannot be both text and label"):
        rows(file, text="review", label="review")
    for empty in ({"text": ""}, {"label": ""}):
        with pytest.raises(UsageError, match="names no column"):
            rows(file, **empty)
    both = write(tmp_path / "b.csv", "content,comment\nyes,good\n")
    assert rows(both, label="content")[0].segments == ("good",)  # a column is never read twice
    pairs = write(tmp_path / "p.csv", "sentence1,other,label\na,b,yes\n")
    with pytest.raises(DataError, match="no column for the premise"):
        rows(pairs, "entail", hypothesis="sentence1")


def test_a_column_of_training_that_is_missing_is_named(tmp_path: Path) -> None:
    trained = Columns(text="review", label="sentiment")
    file = write(tmp_path / "t.csv", "body,score\ngood,3\n")
    with pytest.raises(
        DataError, match=r"no column for the text of task classify, which was 'review' in training.*--column text"
    ):
        read_table(file, "classify", Columns(), trained=trained, need_label=False)
    (row,) = read_table(file, "classify", Columns(text="body"), trained=trained, need_label=False)[1]
    assert (row.segments, row.label) == (("good",), None)  # a score is no sentiment
    more = write(tmp_path / "c.csv", "question,answer1,answer2,answer3\nq,x,y,z\n")
    before = Columns(context="", question="question", answers=["answer1", "answer2"])
    (row,) = read_table(more, "choice", Columns(), trained=before, need_label=False)[1]
    assert row.segments[2:] == ("x", "y", "z")


def test_a_column_that_the_first_object_lacks_is_read(tmp_path: Path) -> None:
    objects = [{"review": "a"}, {"review": "b", "label": "yes"}]
    for name, content in (("t.jsonl", "\n".join(map(json.dumps, objects))), ("t.json", json.dumps(objects))):
        assert [row.label for row in rows(write(tmp_path / name, content))] == [None, "yes"]
    odd = [{"body": "a", "label": "no"}, {"body": "b", "label": "yes", "comment": "typo"}]
    assert rows(write(tmp_path / "o.jsonl", "\n".join(map(json.dumps, odd))))[1].segments == ("b",)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_header_without_commas_has_another_separator(tmp_path: Path, separator: str) -> None:
    lines = [separator.join(fields) for fields in (('"review, long"', "label"), ("good, or not", "yes"))]
    (row,) = rows(write(tmp_path / "t.csv", "\n\n" + "\n".join(lines) + "\n"), text="review, long")
    assert (row.segments, row.label) == (("good, or not",), "yes")


def test_no_value_of_an_unnamed_column_is_lost(tmp_path: Path) -> None:
    table = open_table(write(tmp_path / "t.csv", ",review,\n1,good,x\n"))
    assert table.columns == ["", "review", "column 3"]
    assert [row for _, row in table.rows] == [{"": "1", "review": "good", "column 3": "x"}]
    assert open_table(write(tmp_path / "q.csv", '"a;b\nc",label\n1,2\n')).columns == ["a;b\nc", "label"]


def test_numbered_columns_of_a_table_with_a_header_are_refused(tmp_path: Path) -> None:
    named = write(tmp_path / "n.csv", "text,label\na great film,good\n")
    with pytest.raises(DataError, match="has a header, with 'text', 'label'"):
        rows(named, text="1", label="2")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_blank_line_is_not_a_row(tmp_path: Path, name: str) -> None:
    one = open_table(write(tmp_path / name, "\nreview\ngood\n\nbad\n\n"))
    assert [(number, row["review"]) for number, row in one.rows] == [(1, "good"), (2, "bad")]
    two = open_table(write(tmp_path / f"two.{name[2:]}", "a,b\n1,2\n\n3,4\n".replace(",", ",\t"[name == "t.tsv"])))
    assert [row["b"] for _, row in two.rows] == ["2", "4"]


def test_a_label_is_the_text_of_a_numeric_answer_if_all_are() -> None:
    sums = [Raw(("", "8 + 4", "12", "13", "11"), "12", 1), Raw(("", "1 + 1", "3", "2", "4"), "2", 2)]
    labels = learn_labels(sums, "choice", None, "it")
    assert [labels.target_of(row, "it") for row in sums] == [0, 1]
    unclear = [Raw(("", "10 - 8", "2", "0", "1"), "2", 1)]
    with pytest.raises(DataError, match="row 1 has the label '2', which is the text of one answer and the number"):
        learn_labels(unclear, "choice", None, "it")
    assert labels.target_of(Raw(("", "2 + 2", "4", "5"), 4.0, 3), "it") == 0
    with pytest.raises(DataError, match="label 'ß' is not one of the 2 answers"):
        labels.target_of(Raw(("", "q", "x", "y"), "ß", 4), "it")
    counted = learn_labels([Raw(("", "q", "1", "2", "3"), label, 1) for label in (0, 1)], "choice", None, "it")
    with pytest.raises(DataError, match="label 3 is not one of the 3 answers"):
        counted.target_of(Raw(("", "q", "1", "2", "3"), 3, 5), "it")
    numbered = [Raw(("", "q", "0", "1", "2"), number, number) for number in (0, 1, 2)]
    assert [learn_labels(numbered, "choice", None, "it").target_of(row, "it") for row in numbered] == [0, 1, 2]


def test_similarities_are_scores_unless_there_are_two() -> None:
    def target(*labels: float) -> str:
        pairs = [Raw(("a", "b"), label, row) for row, label in enumerate(labels, 1)]
        return learn_labels(pairs, "similarity", None, "it").target

    assert (target(0, 1, 1), target(0, 3, 5), target(0.5, 1)) == ("class", "score", "score")


def test_levels_have_different_names() -> None:
    spread = [Raw(("a",), score, row) for row, score in enumerate((100_000.0, 100_000.5, 100_001.0), 1)]
    names = learn_labels(spread, "classify", "score", "it").output_names
    assert names == ["100000", "100000.2", "100000.4", "100000.6", "100000.8", "100001"]


def test_a_table_without_a_header_is_read_by_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a great film|good\nan awful one|bad\na good one|good\n")
    with pytest.raises(
        DataError,
        match=r"has no header: its first row is 'a great film'.*--text 1 --label 2",
    ):
        rows(file)
    found = rows(file, text="1", label="2")
    assert [row.label for row in found] == ["good", "bad", "good"]
    equal = rows(write(tmp_path / "e.csv", "x,1,1\ny,2,1\nz,1,2\n"), text="1", label="2")
    assert [row.label for row in equal] == ["1", "2", "1"]  # two equal values of the first row are no names


def test_true_is_one_label_in_json_and_csv(tmp_path: Path) -> None:
    table = rows(write(tmp_path / "t.csv", "text,label\na,True\nb,FALSE\n"))
    objects = rows(write(tmp_path / "t.jsonl", '{"text": "c", "label": true}\n{"text": "d", "label": false}'))
    labels = learn_labels(table, "classify", None, "t")
    assert labels.names == ["FALSE", "True"]
    assert labels.targets(objects, "t").tolist() == [1, 0]


def test_rows_with_lost_characters_are_counted() -> None:
    rows = [Raw(("half \ufffd of a sign",), "a", 1), Raw(("whole",), "b", 2)]
    _, notes = describe(
        {"training": Usable(rows), "validation": Usable(rows[1:])},
        Labels(target="class", names=["a", "b"]),
        np.arange(2.0),
        [],
    )
    assert "1 row in training with U+FFFD, in place of lost characters" in notes
    assert not any("FFFD" in note for note in notes if "validation" in note)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.csv", '"text","label"\n"1","fine",1\n', r"has 3 fields.*in double quotes"),
        ("lines.tsv", 'text\tlabel\n"fine\nday"\t1\n', r"has 1 field.*Save the table as CSV"),
    ],
)
def test_a_table_of_another_shape_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows(write(tmp_path / name, content))


def test_a_decimal_comma_and_labels_in_two_cases_are_named() -> None:
    with pytest.raises(DataError, match=r"1 row of 1 without a score: 1 \('0,5'\).*decimal point"):
        learn_labels([Raw(("a",), "0,5", 1)], "similarity", "score", "t")
    with pytest.raises(DataError, match=r"'10,000원'.*without commas and a unit"):
        learn_labels([Raw(("a",), "10,000원", 1)], "similarity", "score", "t")
    given = Usable([Raw(("a",), "Good", 1), Raw(("b",), "good", 2)])
    labels = Labels(target="class", names=["Good", "good"])
    assert any("'Good', 'good'" in note for note in describe({"training": given}, labels, np.arange(2.0), [])[1])
