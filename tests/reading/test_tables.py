"""Tables of any spreadsheet, JSON of any form, and tables without a header."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from headwater.errors import DataError, HeadwaterError
from headwater.reading import open_table

ROWS = [{"text": "good, really", "label": 1}, {"text": "bad", "label": 0}]


def read(path: Path, *named: str) -> list[dict[str, Any]]:
    return [dict(row) for _, row in open_table(path, named=named).rows]


@pytest.mark.parametrize(
    "content",
    [
        {"text": {"0": "good, really", "1": "bad"}, "label": {"0": 1, "1": 0}},
        {"schema": {"fields": [], "pandas_version": "1.4.0"}, "data": ROWS},
        {"text": ["good, really", "bad"], "label": [1, 0]},
        ROWS,
        {"version": "1.1", "count": 2, "data": ROWS},
    ],
    ids=["columns", "table", "list", "records", "data"],
)
def test_json_is_read_in_each_form(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(content))
    assert read(file) == ROWS


def test_one_object_of_objects_stays_one_row(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    for meta in ({"a": 1}, [{"a": 1}]):
        file.write_text(json.dumps({"text": "one", "meta": meta}))
        assert read(file) == [{"text": "one", "meta": meta}]


@pytest.mark.parametrize(
    "content",
    [
        "text|label\na, b|x\nc|y\n",
        "sep=;\ntext;label\na, b;x\nc;y\n",
        '\ufeff"sep=|"\r\ntext|label\r\na, b|x\r\nc|y\r\n',
    ],
)
def test_bars_and_the_first_line_of_excel_separate(tmp_path: Path, content: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(content.encode())
    assert read(file) == [{"text": "a, b", "label": "x"}, {"text": "c", "label": "y"}]


def test_the_separator_that_fits_all_rows_is_used(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a, fine film|good\nb|bad\nc, d, e|bad\n")
    assert read(file, "1")[2] == {"1": "c, d, e", "2": "bad"}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_table_without_a_header_is_recognised(tmp_path: Path, name: str) -> None:
    mark = "," if name == "t.csv" else "\t"
    file = tmp_path / name
    file.write_text(f"fine film{mark}good\nawful{mark}bad\nlovely{mark}good\n")
    assert open_table(file).first_row() == ["fine film", "good"]
    assert [row["1"] for row in read(file, "1", "2")] == ["fine film", "awful", "lovely"]
    file.write_text(f"text{mark}label\nfine film{mark}good\nawful{mark}bad\n")
    assert open_table(file).first_row() is None


def test_a_column_whose_name_is_a_number_is_that_column(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("2,1\na,b\n")
    assert read(file, "1") == [{"2": "a", "1": "b"}]


def test_ten_thousand_columns_are_read_or_named_shortly(tmp_path: Path) -> None:
    from headwater.finetuning.rows.read import Columns, read_table

    file = tmp_path / "t.csv"
    names = [f"c{number}" for number in range(10_000)]
    file.write_text(",".join(names) + "\n" + ",".join(["x"] * 10_000) + "\n")
    with pytest.raises(DataError, match="no column for the text") as raised:
        read_table(file, "classify", Columns())
    assert len(str(raised.value)) < 600


def test_a_workbook_is_read_as_its_csv(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label", None], ["좋다", True], [], ["bad", 2], [None, 1.5]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert read(tmp_path / "t.xlsx") == [
        {"text": "좋다", "label": "TRUE"},  # as Excel shows and saves it
        {"text": "bad", "label": 2},
        {"text": None, "label": 1.5},
    ]
    (tmp_path / "broken.xlsx").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        open_table(tmp_path / "broken.xlsx")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".csv.gz", ".arrow", ".stream.arrow", ".parquet"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """The rest of a file that another program writes again is never taken for the whole."""
    monkeypatch.setattr("headwater.reading.text._BLOCK_BYTES", 1000)
    path = tmp_path / f"t{suffix}"
    texts = [f"text {number} {random.Random(number).randbytes(20).hex()}" for number in range(5_000)]
    if suffix == ".jsonl":
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    elif "arrow" in suffix or suffix == ".parquet":
        table = pyarrow.table({"text": texts})
        sink = pyarrow.BufferOutputStream()
        if suffix == ".parquet":
            pyarrow.parquet.write_table(table, sink, row_group_size=100)
        else:
            new = pyarrow.ipc.new_stream if "stream" in suffix else pyarrow.ipc.new_file
            with new(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=100)
        content = sink.getvalue().to_pybytes()
    else:
        content = "".join(f"{text}\n" for text in ["text", *texts]).encode()
        content = gzip.compress(content) if suffix.endswith(".gz") else content
    path.write_bytes(content)
    assert len(read(path)) == len(texts)
    rows = open_table(path).rows
    next(rows)
    os.truncate(path, len(content) // 2)
    with pytest.raises(HeadwaterError, match=re.escape(str(path))):
        list(rows)
