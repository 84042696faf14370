import json
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.storage import Stage, write_text


def fill(folder: Path, kind: str, inputs: dict[str, Path]) -> Path:
    with Stage(folder, kind=kind, config={"seed": 3}, inputs=inputs).write() as work:
        write_text(work / "content.txt", kind)
    return folder


def test_the_tree_goes_back_to_the_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "book.txt"
    write_text(source, "text")
    corpus = fill(tmp_path / "corpus", "corpus", {"source": source})
    tokenizer = fill(tmp_path / "tokenizer", "tokenizer", {"corpus": corpus})
    tokens = fill(tmp_path / "tokens", "tokens", {"corpus": corpus, "tokenizer": tokenizer})
    assert main(["lineage", str(tokens)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tokens [tokens " in lines[0].replace("  ", " ")
    assert sum("book.txt" in line for line in lines) == 2
    assert any(line.lstrip("│ ").startswith("└─ corpus: ") for line in lines)

    write_text(source, "another text")
    assert main(["lineage", str(tokens)]) == 0
    assert capsys.readouterr().out.count("(CHANGED)") == 2

    assert main(["lineage", str(tokens), "--json"]) == 0
    chain = json.loads(capsys.readouterr().out)
    assert [entry["role"] for entry in chain["inputs"]] == ["corpus", "tokenizer"]


def test_lineage_follows_symbolic_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = fill(tmp_path / "data" / "deep" / "corpus", "corpus", {})
    (tmp_path / "runs").symlink_to(corpus.parent)
    fill(tmp_path / "runs" / "tokens", "tokens", {"corpus": corpus})
    fill(tmp_path / "model", "model", {"tokens": tmp_path / "runs" / "tokens"})
    (tmp_path / "latest").symlink_to("model")
    monkeypatch.chdir(tmp_path / "data")
    for folder in (
        tmp_path / "latest",
        tmp_path / "runs" / "tokens",
        corpus.parent / "tokens",
        Path("deep/tokens"),
    ):
        assert main(["lineage", str(folder)]) == 0
        shown = capsys.readouterr().out
        assert "corpus  [corpus" in shown
        assert "GONE" not in shown
    assert "─ corpus: deep/corpus  [" in shown


def test_lineage_continues_past_damaged_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = fill(tmp_path / "labels", "labels", {})
    kept = fill(tmp_path / "kept", "corpus", {})
    inputs = {"train": labels / "content.txt", "labels": labels, "kept": kept}
    model = fill(tmp_path / "model", "model", inputs)
    write_text(labels / "content.txt", "another text")
    write_text(labels / "headwater.json", "{")
    assert main(["lineage", str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["CHANGED" in line for line in lines if "[" in line] == [False, True, True, False]


def test_a_folder_without_provenance_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(tmp_path)]) == 1
    assert "headwater.json" in capsys.readouterr().err
    write_text(tmp_path / "book.txt", "text")
    assert main(["lineage", str(tmp_path / "book.txt")]) == 1
    assert "book.txt is a file; expected a folder" in capsys.readouterr().err
