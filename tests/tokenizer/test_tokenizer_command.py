"""`headwater tokenizer` from the outside: folders, ids, text, comparison; errors as one paragraph."""

from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.errors import DataError
from headwater.tokenizer import Tokenizer, compare

TEXT = "the theme of the thesis, 안녕 세계\n" * 30


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    arguments = ["tokenizer", "train", str(tmp_path / "text.txt"), "--vocab-size", "270"]
    assert main([*arguments, "--special", "<pad>", "--out", str(tmp_path / "out"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["vocabulary_size"] == 270
    assert result["identity"] == Tokenizer.load(tmp_path / "out").identity
    return tmp_path / "out"


def test_encode_and_decode_are_inverse(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenizer", "encode", "the theme", "--tokenizer", str(folder)]) == 0
    ids = capsys.readouterr().out.strip()
    assert [int(i) for i in ids.split()] == Tokenizer.load(folder).encode("the theme")
    assert main(["tokenizer", "decode", ids, "--tokenizer", str(folder)]) == 0
    assert capsys.readouterr().out == "the theme\n"
    assert main(["tokenizer", "encode", "<pad>", "--tokenizer", str(folder), "--allow-special", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == [269]


def test_encoding_the_name_of_a_file_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder.parent / "text.txt"
    assert main(["tokenizer", "encode", str(file), "--tokenizer", str(folder)]) == 0
    assert f"headwater tokenizer encode - < {shlex.quote(str(file))}" in capsys.readouterr().err
    assert main(["tokenizer", "encode", "the river " * 999, "--tokenizer", str(folder)]) == 0
    assert capsys.readouterr().err == ""


def test_stdin_that_is_not_text_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"fine\ncaf\xe9"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["tokenizer", "encode", "-", "--tokenizer", str(folder)]) == 1
    assert "stdin is not UTF-8: byte 0xe9 in line 2" in capsys.readouterr().err


def test_wrong_ids_and_kinds_are_wrong_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenizer", "decode", "1 x", "--tokenizer", str(folder)]) == 2
    assert "'x' is not a token id" in capsys.readouterr().err
    assert main(["tokenizer", "decode", "9" * 5000, "--tokenizer", str(folder)]) == 2
    assert "is not a token id" in capsys.readouterr().err
    assert main(["tokenizer", "train", "a.txt", "--kind", "gpt9", "--out", str(folder)]) == 2
    assert main(["tokenizer", "train", str(folder.parent / "text.txt"), "--out", str(folder)]) == 1
    assert "already contains something else" in capsys.readouterr().err


def test_compare_prints_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder.parent / "text.txt"
    assert main(["tokenizer", "compare", str(folder), str(folder), str(file), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["tokenizers"]
    assert first == second
    tokenizer = Tokenizer.load(folder)
    assert first["tokens"] == len(tokenizer.encode(TEXT))
    assert first["bytes_per_token"] == pytest.approx(len(TEXT.encode()) / first["tokens"])
    words = TEXT.split()
    split = [len(tokenizer.encode(" " + word)) > 1 for word in words]
    assert first["split_share"] == pytest.approx(sum(split) / len(words))
    used = set(tokenizer.encode(TEXT))
    assert first["unused_share"] == pytest.approx(1 - len(used) / 268)
    assert main(["tokenizer", "compare", str(folder), str(folder), str(file)]) == 0
    assert "words split" in capsys.readouterr().out


def test_comparison_needs_words(folder: Path) -> None:
    with pytest.raises(DataError, match="no words"):
        compare([("a", Tokenizer.load(folder))], " \n")
