"""Small files that stand for gigabytes: each is refused, or read in bounded memory."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.corpus import Document, write_documents
from headwater.corpus.folder import read_shard
from headwater.errors import DataError, FolderError
from headwater.finetuning import Raw
from headwater.finetuning.model.inputs import encode
from headwater.reading import ParquetTable, open_table, parse_json, read_json
from headwater.tokenizer import Tokenizer

MEBI = 1 << 20
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds memory as Linux does")
# Runs commands, each with arguments separated by tabs, in a process with bounded memory beyond its imports.
WITHIN = """
import resource, sys
import numpy, pyarrow.parquet, torch
import headwater.corpus.building, headwater.finetuning.stage, headwater.tokenizer
from headwater.cli.main import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 700 * 2**20,) * 2)
for line in sys.argv[1:]:
    print("status", main(line.split("\\t")), flush=True)
"""


def repeated(path: Path, size: int, rows: int, form: str = "text") -> Path:
    """Write a Parquet file of one long value in each row: as text, or extended from row to row."""
    places = pa.array([0] * rows, pa.int32())
    values: Any = pa.DictionaryArray.from_arrays(places, pa.array(["0" * size]))
    options: dict[str, Any] = {}
    if form == "prefixes":
        values = pa.array(["0" * size] * rows)
        options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    elif form == "plain":
        values = pa.array(["0" * size] * rows)
        options = {"use_dictionary": False}
    labels = pa.array(["good", "bad"] * (rows // 2) + ["bad"] * (rows % 2))
    pq.write_table(pa.table({"text": values, "label": labels}), path, compression="zstd", **options)
    return path


@LINUX
def test_every_command_refuses_a_parquet_bomb_in_one_line(tmp_path: Path) -> None:
    bomb = repeated(tmp_path / "bomb.parquet", 26 * MEBI, 400)
    assert bomb.stat().st_size < 3_000
    commands = [
        f"corpus\tbuild\t{bomb}\t--out\t{tmp_path / 'corpus'}\t--workers\t1",
        f"finetune\t--task\tclassify\t--train\t{bomb}\t--out\t{tmp_path / 'labels'}",
    ]
    found = subprocess.run([sys.executable, "-c", WITHIN, *commands], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["status", "1"] * len(commands), found.stderr
    assert found.stderr.count("bytes that repeat in the column 'text'; expected at most") == len(commands), (
        found.stderr
    )
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("form", ["text", "prefixes", "plain"])
def test_batches_of_long_values_have_few_rows(tmp_path: Path, form: str) -> None:
    path = repeated(tmp_path / "a.parquet", 8 * MEBI, 20, form)
    with ParquetTable(path) as table:
        batches = [batch.num_rows for batch in table.batches(256)]
    assert sum(batches) == 20
    assert max(batches) * 8 * MEBI <= 72 * MEBI


def test_large_documents_are_read_back(tmp_path: Path) -> None:
    texts = [f"{number} " + "river " * MEBI for number in range(12)]
    write_documents((Document(str(number), text) for number, text in enumerate(texts)), tmp_path)
    assert [document.text for document in read_shard(tmp_path / "documents-00000.parquet")] == texts


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_a_parquet_file_without_rows_is_read(tmp_path: Path, has_dictionary: bool) -> None:
    pq.write_table(
        pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet", use_dictionary=has_dictionary
    )
    assert not [*open_table(tmp_path / "a.parquet").rows]


def workbook(path: Path, change: Any) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["a", "b"], ["c", "d"]):
        book.active.append(row)
    book.save(path.with_suffix(".base"))
    with (
        zipfile.ZipFile(path.with_suffix(".base")) as base,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in base.namelist():
            new.writestr(name, change(base.read(name)))
    return path


def test_workbooks_that_grow_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"<t>" + b" " * 68 * MEBI + b"</t>"
    long = workbook(tmp_path / "long.xlsx", lambda part: part.replace(b"<t>a</t>", text))
    with pytest.raises(DataError, match="unpacks to a text of more than"):
        open_table(long)
    monkeypatch.setattr("headwater.reading.files.FileLimits.WORKBOOK_ROWS", 1_000)
    far = workbook(tmp_path / "far.xlsx", lambda part: re.sub(b'(["AB])3"', rb'\g<1>99999999999"', part))
    with pytest.raises(DataError, match="has more than 1,000 rows"):
        list(open_table(far).rows)


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv"])
def test_a_packed_line_of_200_megabytes_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}.gz"
    member = gzip.compress(b"0" * 8 * MEBI, 6)
    path.write_bytes(gzip.compress(b"text\n" if suffix == "csv" else b"0") + 24 * member)
    from headwater.corpus.sources.text import read_text_file

    with pytest.raises(DataError, match="unpacks to a text of more than 67,108,864 characters"):
        list(read_text_file(path, "text"))


def test_json_above_its_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.reading.files.FileLimits.JSON_BYTES", 1_000)
    path = tmp_path / "a.json"
    path.write_text("[" + '{"text": "a"},\n' * 200 + "{}]")
    with pytest.raises(DataError, match="is a JSON value of more than"):
        read_json(path)
    assert len(list(open_table(path).rows)) == 201, "a table of one's own has no limit"


@pytest.mark.parametrize("value", ["[]", "{}"])
def test_json_of_too_many_lists_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr("headwater.reading.files.FileLimits.CONTAINERS", 1_000)
    path = tmp_path / "a.json"
    path.write_text(f"[{','.join([value] * 999)}]")
    assert len(read_json(path)) == 999
    path.write_text(f"[{','.join([value] * 1_000)}]")
    with pytest.raises(FolderError, match="more than 1,000 lists and objects"):
        read_json(path)
    for text in (path.read_text(), path.read_bytes()):
        with pytest.raises(json.JSONDecodeError, match="more than 1,000 lists and objects"):
            parse_json(text)


def test_a_long_text_is_cut_before_it_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(["the river runs"], vocab_size=270).with_task_tokens()
    rows = [Raw(("the river runs " * 100_000,), "a", number) for number in range(12)]
    before = encode(rows[:1], "classify", tokenizer, 64)
    longest: list[int] = []
    whole = Tokenizer.encode_batch

    def watched(self: Tokenizer, texts: Any, *rest: Any) -> Any:
        longest.append(sum(map(len, texts)))
        return whole(self, texts, *rest)

    monkeypatch.setattr(Tokenizer, "encode_batch", watched)
    after = encode(rows, "classify", tokenizer, 64)
    assert max(longest) <= 9 * MEBI
    assert after.ids[:64].tolist() == before.ids.tolist()
    assert all(after.cut > 0)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_is_one_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headwater.cli import main as module

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(module, "get_command", fails)
    assert module.main(["doctor"]) == 1
    assert capsys.readouterr().err.startswith("Error: the memory is too small for this command.")


def test_a_workbook_that_claims_empty_cells_reads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may claim 2^34 cells; openpyxl makes an empty one for each unless the claim is dropped."""

    def claim(part: bytes) -> bytes:
        part = re.sub(b'<dimension ref="[^"]*"', b'<dimension ref="A1:XFD20000"', part)
        return part.replace(b"</sheetData>", b'<row r="20000"/></sheetData>')

    path = workbook(tmp_path / "claims.xlsx", claim)
    from openpyxl.worksheet import _read_only

    widths: list[int] = []
    get_row = _read_only.ReadOnlyWorksheet._get_row

    def measured(sheet: Any, *arguments: Any, **options: Any) -> Any:
        row = get_row(sheet, *arguments, **options)
        widths.append(len(row))
        return row

    monkeypatch.setattr(_read_only.ReadOnlyWorksheet, "_get_row", measured)
    plain = [row for _, row in open_table(workbook(tmp_path / "plain.xlsx", lambda part: part)).rows]
    assert plain
    expected, widths[:] = max(widths), []
    assert [row for _, row in open_table(path).rows] == plain
    assert max(widths) == expected


def test_parquet_rows_that_the_metadata_invents_are_refused(tmp_path: Path) -> None:
    def varint(value: int) -> bytes:  # in Thrift, of a number of three bytes
        value *= 2
        return bytes([value >> 7 * place & 0x7F | 0x80 for place in range(2)] + [value >> 14])

    path, rows = tmp_path / "a.parquet", 10_011
    table = pa.table({"text": [f"{number:06d}" + "0" * 60 for number in range(rows)]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    honest = path.read_bytes()
    with ParquetTable(path) as whole:
        assert sum(batch.num_rows for batch in whole.batches(100)) == rows
    path.write_bytes(honest[:-2_000] + honest[-2_000:].replace(varint(rows), varint(rows + 9)))
    with ParquetTable(path) as lie, pytest.raises(DataError, match="9 rows of its metadata are missing"):
        list(lie.batches(100))
