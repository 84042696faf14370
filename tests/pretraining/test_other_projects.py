"""Token files of nanoGPT, llm.c and build-nanogpt become tokens folders."""

from __future__ import annotations

import functools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from headwater.cli.main import main
from headwater.errors import DataError
from headwater.evaluation.tasks.held_out import Alphabet, document_ids, read_text
from headwater.pretraining import TokenStream, holds_tokens
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

END = 50_256
NAMES = {
    "nanogpt": ("train.bin", "val.bin"),
    "llm.c": ("tokens_train_000000.bin", "tokens_val_000000.bin"),
    "build-nanogpt": ("tokens_train_000000.npy", "tokens_val_000000.npy"),
}


@functools.cache
def ids_of(part: int) -> np.ndarray:
    """Three documents; only the first and the second have an end of text."""
    texts = ["The river flows. " * 80, "Snow – melts. " * 40, "A lake is deep."]
    tokenizer = Tokenizer.load("gpt2")
    one, two, three = (tokenizer.encode(text * (2 - part)) for text in texts)
    ids = np.array([*one, END, *two, END, *three], dtype="<u2")
    ids.flags.writeable = False  # every test gets the same array
    return ids


def write(folder: Path, layout: str) -> Path:
    folder.mkdir()
    for part, name in enumerate(NAMES[layout]):
        write_file(folder / name, layout, ids_of(part))
    return folder


def write_file(path: Path, layout: str, ids: np.ndarray) -> None:
    if layout == "build-nanogpt":
        np.save(path, ids)
        return
    header = np.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, len(ids)
    path.write_bytes((header.tobytes() if layout == "llm.c" else b"") + ids.tobytes())


@pytest.mark.parametrize("layout", list(NAMES))
def test_token_files_round_trip_byte_for_byte(
    tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "source", layout)
    assert main(["convert", str(source), str(tmp_path / "tokens"), "--json"]) == 0
    printed = capsys.readouterr()
    assert "GPT-2's original tokenizer" in printed.err
    found = json.loads(printed.out)
    assert found["source"] == layout
    text = "The river flows. " * 160 + "Snow – melts. " * 80 + "A lake is deep." * 2
    expected = {"tokens": len(ids_of(0)), "documents": 3, "bytes": len(text.encode())}
    assert found["counts"]["train"] == expected
    stream = TokenStream(tmp_path / "tokens", "validation", 64)
    assert (stream.shards[0].read(0, len(ids_of(1))) == ids_of(1)).all()
    starts = np.load(tmp_path / "tokens/documents-train-00000.npy")
    assert starts.tolist() == [0, *(np.flatnonzero(ids_of(0) == END) + 1)]


def altered(path: Path, number: int, value: int) -> bytes:
    values = np.frombuffer(path.read_bytes()[:1024], dtype="<i4").copy()
    values[number] = value
    return values.tobytes() + path.read_bytes()[1024:]


@pytest.mark.parametrize(
    ("layout", "damage", "message"),
    [
        ("llm.c", lambda path: altered(path, 0, 20240801), "magic number 20240801: ids of Llama 3's vocabulary"),
        ("llm.c", lambda path: altered(path, 0, 7), "has the magic number 7; expected 20240520"),
        ("llm.c", lambda path: altered(path, 1, 2), "has version 2; expected 1"),
        ("llm.c", lambda path: path.read_bytes()[:-100], "is truncated"),
        ("llm.c", lambda path: path.read_bytes()[:1000], "too short for a header"),
        ("llm.c", lambda path: path.read_bytes()[1024:], "expected the magic number 20240520"),
        ("nanogpt", lambda path: path.read_bytes()[:-1], "expected uint16 ids, of two bytes each"),
        ("nanogpt", lambda path: b"", "has 0 bytes; expected uint16 ids"),
        ("build-nanogpt", lambda path: path.read_bytes()[:-100], "is damaged"),
        ("build-nanogpt", lambda path: b"", "is damaged"),
        ("build-nanogpt", lambda path: path.read_bytes()[:10] + b"'''" + path.read_bytes()[13:], "is damaged"),
        ("nanogpt", lambda path: path.read_bytes()[:20] + b"\x51\xc4" + path.read_bytes()[22:],
         "has id 50,257 at position 10; expected ids below its vocabulary size, 50,257"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_message_and_leaves_nothing(
    tmp_path: Path, layout: str, damage: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "source", layout)
    path = source / NAMES[layout][0]
    path.write_bytes(damage(path))  # type: ignore[operator]
    assert main(["convert", str(source), str(tmp_path / "tokens")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert path.name in said
    assert message in said
    assert not (tmp_path / "tokens").exists()


def write_characters(folder: Path, text: str) -> Path:
    """Write what nanoGPT's prepare.py writes for a text of characters."""
    characters = sorted(set(text))
    stoi = {c: i for i, c in enumerate(characters)}
    folder.mkdir()
    for name in NAMES["nanogpt"]:
        np.array([stoi[c] for c in text], dtype=np.uint16).tofile(folder / name)
    meta = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": stoi}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder


def test_nanogpts_characters_are_a_vocabulary(tmp_path: Path) -> None:
    text = "First Citizen: 안녕, Speak!\n" * 40
    source = write_characters(tmp_path / "source", text)
    assert main(["convert", str(source), str(tmp_path / "tokens")]) == 0
    tokenizer = Tokenizer.load(tmp_path / "tokens" / "tokenizer")
    ids = np.fromfile(source / "train.bin", dtype=np.uint16).tolist()
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.identity == Tokenizer.load(source).identity
    with pytest.raises(DataError, match="the tokenizer has no 'Q': its 20 tokens are characters"):
        tokenizer.encode("Queen")


def test_another_vocabulary_than_the_described_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_characters(tmp_path / "source", "to be or not " * 40)
    other = write_characters(tmp_path / "other", "to de or not " * 40)
    for name, message in (("gpt2", "has 50,257; expected the tokenizer"), (str(other), "id 1 is 'b' in")):
        assert main(["convert", str(source), str(tmp_path / "tokens"), "--tokenizer", name]) == 1
        assert message in " ".join(capsys.readouterr().err.split())
    (source / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 300}))
    assert main(["convert", str(source), str(tmp_path / "tokens")]) == 1
    assert "names 300 tokens, but not which" in " ".join(capsys.readouterr().err.split())


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "source", "nanogpt")
    (source / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": Path("x")}))
    for said in ("it names pathlib", "is not nanoGPT's description of a vocabulary"):
        assert main(["convert", str(source), str(tmp_path / "tokens")]) == 1
        assert said in " ".join(capsys.readouterr().err.split())
        (source / "meta.pkl").write_bytes(b"never read")


def test_a_file_name_with_train_and_val_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "source", "llm.c")
    (source / "tokens_train_000000.bin").rename(source / "medieval_train.bin")
    assert main(["convert", str(source), str(tmp_path / "tokens")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "medieval_train.bin has train and val in its name" in said
    assert not (tmp_path / "tokens").exists()


def test_tokens_are_not_written_as_gguf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(write(tmp_path / "source", "llm.c")), str(tmp_path / "tokens.gguf")]) == 2
    assert "GGUF holds models" in capsys.readouterr().err


def test_an_id_beyond_the_vocabulary_is_refused_everywhere(tmp_path: Path) -> None:
    ids = np.zeros(100, dtype=np.uint16)
    ids[[41, 50]] = 10
    counts = {"train": {"bytes": 100}}
    config = {"vocabulary_size": 10, "counts": counts}
    stage = Stage(tmp_path / "tokens", kind="tokens", config=config, inputs={})
    with stage.write() as work:
        np.save(work / "train-00000.npy", ids)
    stream = TokenStream(tmp_path / "tokens", "train", 8)
    stream.window(4)
    named = r"train-00000.npy has id 10 at position 41; expected ids below .* 10"
    with pytest.raises(DataError, match=named):
        stream.window(5)
    with pytest.raises(DataError, match=named):
        document_ids(tmp_path / "tokens", "train")
    for size in (50, 200):
        alphabet = Alphabet(Tokenizer.load("gpt2"))
        with pytest.raises(DataError, match=named):
            read_text(tmp_path / "tokens", "train", alphabet, size)


def test_a_weight_file_is_not_a_token_file(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    torch.save({"a": torch.zeros(3)}, weights)
    assert not holds_tokens(weights)
    assert holds_tokens(next(write(tmp_path / "source", "llm.c").glob("*train*.bin")))
