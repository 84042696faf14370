"""Tables as other programs write them: each column means what the file says, and damage is one message."""

from __future__ import annotations

import csv
import decimal
import gzip
import json
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import DataError
from headwater.reading import open_table
from headwater.reading.separated import split_csv


def read(path: Path, *named: str) -> list[dict[str, Any]]:
    return [dict(row) for _, row in open_table(path, named=named).rows]


def test_csv_is_split_as_pythons_reader_splits_it() -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(4_000):
        content = "".join(chance.choice('ab,"\r\n\n"",') for _ in range(chance.randrange(1, 24)))
        lines = content.split("\n")
        try:
            expected = [*csv.reader((line + "\n" for line in lines), strict=True)]
        except csv.Error:
            refused += 1
            with pytest.raises(DataError):
                list(split_csv(lines, ",", Path("a.csv")))
            continue
        assert list(split_csv(lines, ",", Path("a.csv"))) == expected, content
    assert 400 < refused < 3_600


def test_reading_csv_leaves_the_limit_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The csv module has one limit for all threads."""
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + f'"{"long " * 40_000}",a\n' * 20)
    monkeypatch.setattr(csv, "field_size_limit", lambda *_: pytest.fail("it was changed"))
    assert len(read(path)) == 20


def test_a_long_field_does_not_hide_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"id;a,b;text\n1;2;{'long ' * 40_000}\n")
    assert open_table(tmp_path / "t.csv").columns == ["id", "a,b", "text"]


def test_a_text_of_parquet_that_is_not_utf_8_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bad = pa.array([b"fine", b"caf\xe9"]).view(pa.string())
    pq.write_table(pa.table({"text": bad}), path)
    with pytest.raises(DataError, match=r"t\.parquet cannot be read as Parquet: Invalid: Invalid UTF8|UTF8"):
        list(open_table(path).rows)


def test_a_workbook_with_flipped_bits_is_read_or_refused(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for number in range(30):
        book.active.append([f"text {number}", number])
    book.save(tmp_path / "whole.xlsx")
    whole = (tmp_path / "whole.xlsx").read_bytes()
    chance, refused = random.Random(3), 0
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(3):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (tmp_path / "t.xlsx").write_bytes(content)
        try:
            read(tmp_path / "t.xlsx")
        except DataError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("has_other_keys", [False, True])
def test_json_records_by_id_are_rows(tmp_path: Path, has_other_keys: bool) -> None:
    records: dict[str, Any] = {"q1": {"text": "a", "label": 1}, "q2": {"text": "b", "label": 0}}
    if has_other_keys:
        records["q2"]["note"] = "odd"
    (tmp_path / "t.json").write_text(json.dumps(records))
    assert read(tmp_path / "t.json") == [{"id": name, **row} for name, row in records.items()]


def test_columns_of_parquet_have_their_own_meaning(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table(
        {
            "text": pa.array(["좋다".encode(), b"bad", None], pa.binary()),
            "score": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25"), None], pa.decimal128(6, 2)),
            "id": pa.array([decimal.Decimal(7), decimal.Decimal(8), None], pa.decimal128(18, 0)),
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "image": pa.array([b"\xff\xd8", b"\x89", None], pa.binary()),
            "label": [1, 0, -1],
            "labels": [[0, 1], [], [1]],
        }
    )
    feature = {"names": ["spam", "ham"], "_type": "ClassLabel"}
    features = {"label": feature, "labels": {"feature": feature, "_type": "Sequence"}, "text": {"_type": "Value"}}
    content = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": content}), path)
    first, second, third = read(path)
    assert first == {
        "text": "좋다",
        "score": 1.5,
        "id": 7,
        "kind": "x",
        "image": b"\xff\xd8",
        "label": "ham",
        "labels": ["spam", "ham"],
    }
    assert (second["label"], second["labels"], third["label"], third["score"]) == ("spam", [], None, None)
    assert open_table(path, ["text"]).texts[:2] == ["kind", "text"]
    assert next(row for _, row in open_table(path, ["text"]).rows) == {"text": "좋다"}


def test_times_that_python_does_not_have_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"at": pa.array([1], pa.timestamp("ns")), "far": pa.array([2**62], pa.timestamp("us"))}
    columns |= {"kind": columns["at"].dictionary_encode()}
    pq.write_table(pa.table({"text": ["a"], **columns}), path)
    [row] = read(path)
    assert str(row["at"]) == str(row["kind"]) == "1970-01-01 00:00:00.000000001"
    assert "out of range" in row["far"]
    pq.write_table(pa.table({"text": ["a"], "times": pa.array([[2**62]], pa.list_(pa.timestamp("us")))}), path)
    with pytest.raises(DataError, match=r"t\.parquet: the column 'times' cannot be read"):
        read(path)


def test_arrow_with_wrong_offsets_is_refused(tmp_path: Path) -> None:
    """Asking for its size before its check ended the process."""
    path, table = tmp_path / "t.arrow", pa.table({"text": ["a"], "list": [["b"] * 77]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    before, _, after = path.read_bytes().rpartition(struct.pack("<2i", 0, 77))
    path.write_bytes(before + struct.pack("<2i", 10**8, 10**9) + after)
    with pytest.raises(DataError, match=r"t\.arrow cannot be read as Arrow"):
        read(path)
    path.write_bytes((before + struct.pack("<2i", 0, 77) + after).replace(b"list", b"l\xffst"))
    with pytest.raises(DataError, match=r"t\.arrow cannot be read as Arrow"):
        read(path)


@pytest.mark.parametrize("metadata", ["[]", '{"info": {"features": {"label": [3]}}}', "{", '{"info": 3}'])
def test_metadata_of_another_form_are_ignored(tmp_path: Path, metadata: str) -> None:
    table = pa.table({"text": ["a"], "label": [1]}).replace_schema_metadata({"huggingface": metadata})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == [{"text": "a", "label": 1}]


def test_a_folder_that_datasets_saved_is_a_table(tmp_path: Path) -> None:
    names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
    split = tmp_path / "saved" / "train"
    split.mkdir(parents=True)
    for number, name in enumerate(names):
        table = pa.table({"text": [f"text {number}"] * 300, "label": [number] * 300})
        with pa.OSFile(str(split / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    (split / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (split / "dataset_info.json").write_text("{}")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    rows = list(open_table(split).rows)
    assert (rows[0], rows[-1]) == ((1, {"text": "text 0", "label": 0}), (600, {"text": "text 1", "label": 1}))
    assert read(split / names[1]) == [dict(row) for _, row in rows[300:]]
    with pytest.raises(DataError, match=r"has the splits train; .* Name it: .*saved/train"):
        open_table(tmp_path / "saved")
    (split / names[1]).write_bytes((split / names[1]).read_bytes()[:-3_000])
    with pytest.raises(DataError, match=r"data-00001.* cannot be read as Arrow"):
        list(open_table(split).rows)


def test_the_sheet_with_the_table_is_read_the_others_are_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "About"
    book.active.append(["Reviews of 2025"])
    for title, names in (("Old", ("comment", "rating")), ("New", ("text", "label"))):
        sheet = book.create_sheet(title)
        for row in (names, (f"{title} one", "good"), (f"{title} two", "bad")):
            sheet.append(row)
    book.create_sheet("Empty")
    book.save(tmp_path / "t.xlsx")
    table = open_table(tmp_path / "t.xlsx")
    assert (table.columns, [row["comment"] for _, row in table.rows]) == (
        ["comment", "rating"],
        ["Old one", "Old two"],
    )
    assert table.notes == [f"{tmp_path / 't.xlsx'}: the sheet 'Old' is read, not 'About', 'New'"]
    assert [row["text"] for row in read(tmp_path / "t.xlsx", "text")] == ["New one", "New two"]
    book["New"].insert_cols(1)
    book["New"]["A1"], book["New"]["A2"] = "comment", "of the new sheet"
    book.save(tmp_path / "t.xlsx")
    by_sheet = [
        [row[f"{sheet}!comment"] for row in read(tmp_path / "t.xlsx", f"{sheet}!comment")]
        for sheet in ("Old", "New")
    ]
    assert by_sheet == [["Old one", "Old two"], ["of the new sheet", None]]
    with pytest.raises(DataError, match="has no sheet 'Newer', only 'About', 'Old', 'New', 'Empty'"):
        read(tmp_path / "t.xlsx", "Newer!comment")


def test_booleans_of_a_workbook_are_spelled_as_in_excel(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["one", True], ["two", False]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert [row["label"] for row in read(tmp_path / "t.xlsx")] == ["TRUE", "FALSE"]


def test_a_merged_cell_has_its_value_in_each_row(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ["group", "text", "label"],
        ["a", "one", 1],
        [None, "two", None],
        ["b", "three", 2],
        [None, "four"],
    ):
        book.active.append(row)
    for cells in ("A2:A3", "A4:A5", "C4:C5"):
        book.active.merge_cells(cells)
    book.save(tmp_path / "t.xlsx")
    rows = [(row["group"], row["text"], row["label"]) for row in read(tmp_path / "t.xlsx")]
    assert rows == [("a", "one", 1), ("a", "two", None), ("b", "three", 2), ("b", "four", 2)]


def test_a_formula_without_a_value_is_no_empty_cell(tmp_path: Path) -> None:
    """A program that does not compute writes a formula alone; Excel also what it gives, perhaps an empty text."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["one", "a"], ["two", '=IF(1=1,"a","b")'], ["three", "=B2"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(
        DataError, match=r"t\.xlsx has 2 formulas without a value, the first in B3; .*Excel or Libre"
    ):
        read(tmp_path / "t.xlsx")
    with zipfile.ZipFile(tmp_path / "t.xlsx") as plain, zipfile.ZipFile(tmp_path / "computed.xlsx", "w") as new:
        for name in plain.namelist():
            part = plain.read(name).replace(b'r="B3">', b'r="B3" t="str">').replace(b"</f><v></v>", b"</f><v/>", 1)
            new.writestr(name, part.replace(b"<f>B2</f><v></v>", b"<f>B2</f><v>7</v>"))
    assert [row["label"] for row in read(tmp_path / "computed.xlsx")] in (["a", "", 7], ["a", None, 7])


def test_a_merged_range_as_large_as_a_sheet_takes_no_memory(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["one", 1]):
        book.active.append(row)
    book.save(tmp_path / "plain.xlsx")
    merged = b'</sheetData><mergeCells count="1"><mergeCell ref="A2:XFD1048576"/></mergeCells>'
    with zipfile.ZipFile(tmp_path / "plain.xlsx") as plain, zipfile.ZipFile(tmp_path / "t.xlsx", "w") as new:
        for name in plain.namelist():
            new.writestr(name, plain.read(name).replace(b"</sheetData>", merged))
    assert read(tmp_path / "t.xlsx") == [{"text": "one", "label": 1}]


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
def test_a_value_inside_a_column_is_named_by_its_path(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"data": {"text": "a", "turns": ["x", "y"]}, "label": 1},
        {"data": {"text": "b", "turns": []}, "label": 0},
    ]
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    assert [row["data.text"] for row in read(path, "data.text", "label")] == ["a", "b"]
    assert [row.get("data.turns.1") for row in read(path, "data.turns.1")] == ["y", None]
    table = open_table(path, ["data.text"], named=["data.text"])
    assert "data.text" in table.texts
    assert next(table.rows)[1]["data.text"] == "a"


def test_several_columns_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("title,body,label\nFirst,Long text,1\n,Only a body,0\n,,1\n")
    assert [row["title,body"] for row in read(path, "title,body")] == ["First\n\nLong text", "Only a body", None]
    path.write_text('"title,body",body\na,b\n')
    assert read(path, "title,body") == [{"title,body": "a", "body": "b"}]


def test_text_with_tabs_in_its_first_line_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "ratings.txt"
    path.write_text('id\tdocument\tlabel\n1\t"좋다" 정말\t1\n2\t별로\t0\n')
    assert read(path)[0] == {"id": "1", "document": '"좋다" 정말', "label": "1"}
    path.write_text("A plain text.\nWith\ttabs later.\n")
    with pytest.raises(DataError, match=r"has the ending '\.txt'; .* or a .txt with tabs between its columns"):
        open_table(path)


def test_errors_of_a_spreadsheet_are_no_text(tmp_path: Path) -> None:
    """`#N/A` became a class. The rows have the numbers that the sheet shows."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["a", "good"], [None, None], ["b", "#N/A"], ["c", "# of rooms"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    rows = dict(open_table(tmp_path / "a.xlsx").rows)
    assert list(rows) == [2, 4, 5]
    assert (str(rows[4]["label"]), isinstance(rows[4]["label"], str)) == ("#N/A", False)
    assert rows[5]["label"] == "# of rooms"
    (tmp_path / "a.csv").write_text("text,label\nb,#DIV/0!\n")
    (row,) = (row for _, row in open_table(tmp_path / "a.csv").rows)
    assert not isinstance(row["label"], str)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_header_of_an_appended_file_is_no_row(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.csv").write_text(f"text,label\na,x\n{mark}text,label\nb,y\n", encoding="utf-8")
    broken: list[DataError] = []
    rows = list(open_table(tmp_path / "a.csv", on_broken=broken.append).rows)
    assert rows == [(1, {"text": "a", "label": "x"}), (3, {"text": "b", "label": "y"})]
    assert [error.seen for error in broken] == [f"{tmp_path / 'a.csv'} row 2 repeats the names of the columns"]


def test_questions_of_a_form_are_a_header(tmp_path: Path) -> None:
    form = 'Timestamp,"How was your room?\n(one sentence, as you like it best)",Would you come again?\n'
    (tmp_path / "form.csv").write_text(form + "2026/03/01,A bright room.,yes\n2026/03/02,A dark room.,no\n")
    table = open_table(tmp_path / "form.csv")
    assert table.first_row() is None
    assert table.columns[2] == "Would you come again?"


@pytest.mark.parametrize("name", ["plain.csv.gz", "packed.csv", "packed.csv.xz"])
def test_compression_is_known_by_content(tmp_path: Path, name: str) -> None:
    """A browser unpacks a file and keeps its name; others pack one and name it as before."""
    content = b"text,label\na,x\n"
    (tmp_path / name).write_bytes(content if name.startswith("plain") else gzip.compress(content))
    assert list(open_table(tmp_path / name).rows) == [(1, {"text": "a", "label": "x"})]
