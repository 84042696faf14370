"""Files from strangers: nothing in them is executed, none writes outside its folder, none takes all memory.

Each file is made here. Memory is bounded in a process of its own (`LIMIT` bytes of address space beyond what the
imports take), so that a bomb that unpacks fails the test instead of the machine.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.convert import openai
from headwater.convert.tensor_bundle import TensorBundle
from headwater.corpus import read_pages
from headwater.corpus.folder import Tally
from headwater.corpus.sources import pages
from headwater.corpus.sources.text import read_text_file
from headwater.errors import DataError, FolderError, HeadwaterError
from headwater.model import load_model
from headwater.reading import compressed
from headwater.tokenizer import Tokenizer

MEBI = 1 << 20
SHAPES = [[4, 8], [6, 8], [1, 8, 24], [24], [1, 8, 8], [8], [8], [8], [1, 8, 32], [32], [1, 32, 8], [8], [8], [8]]
CONFIG = {"model_type": "gpt2", "vocab_size": 6, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}

# Reads one file as the command does under a limit of memory, and prints what became of it.
WITHIN = """
import resource, sys
from pathlib import Path
from headwater.errors import HeadwaterError
path, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "pages":
    from fastwarc.warc import ArchiveIterator
    from headwater.corpus.sources.pages import read_pages
    read = lambda: (sum(len(page.data) for page in read_pages(path, notes)), notes)
elif kind == "text":
    from headwater.corpus.sources.text import read_text_file
    read = lambda: (len(list(read_text_file(path, "text"))),)
else:
    import zstandard
    from headwater.corpus.web.links import _Funnel, _submissions
    funnel = _Funnel()
    read = lambda: (len(list(_submissions(path, funnel))), [str(funnel.broken.total("broken lines")), *funnel.cut])
notes = []
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[3]),) * 2)
try:
    print("read", *read())
except HeadwaterError as error:
    print("refused", error)
"""


class Runs:
    """A pickle of this one would make a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def within(path: Path, kind: str, limit: int) -> str:
    command = [sys.executable, "-c", WITHIN, str(path), kind, str(limit)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr
    return found.stdout


def test_pickles_are_refused_and_never_opened(tmp_path: Path) -> None:
    trap = tmp_path / "it-ran"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    messages = {"pytorch_model.bin": "is more than weights|pickled", "model.safetensors": "damaged"}
    for name in (*messages, "model.pt", "model.ckpt"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Runs(trap)))
        with pytest.raises(FolderError, match=messages.get(name, "has no weights")):
            load_model(tmp_path)
        path.unlink()
    assert not trap.exists()


def test_arrays_of_objects_are_refused_and_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_HEAD_WIDTH", 8)
    trap = tmp_path / "it-ran"
    (tmp_path / "params_shapes.json").write_text(json.dumps(SHAPES))
    buffer = io.BytesIO()
    np.save(buffer, np.array([Runs(trap)], dtype=object), allow_pickle=True)
    (tmp_path / "params_0.npy").write_bytes(buffer.getvalue())
    with pytest.raises(FolderError, match=r"params_0\.npy"):
        openai.read_gpt1(tmp_path)
    assert not trap.exists()


def test_an_array_that_claims_a_terabyte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_HEAD_WIDTH", 8)
    (tmp_path / "params_shapes.json").write_text(json.dumps(SHAPES))
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    (tmp_path / "params_0.npy").write_bytes(buffer.getvalue() + bytes(64))
    with pytest.raises(FolderError, match=r"params_0\.npy"):
        openai.read_gpt1(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
        b'{"a":{"dtype":"F32","shape":[-1,-8],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[-32,0]}}',
        b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 5_000 + b'],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,99999999999999]}}',
    ],
)
def test_safetensors_headers_that_lie_are_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    with pytest.raises(HeadwaterError):
        load_model(tmp_path)
    path.write_bytes(struct.pack("<Q", 1 << 62) + header)
    with pytest.raises(FolderError, match=r"model\.safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "ours"),
    [
        ("n_layer", 10**9, "layers"),
        ("n_embd", 10**12, "width"),
        ("vocab_size", 10**15, "vocabulary"),
        ("n_positions", 10**12, "context"),
        ("n_head", -1, "heads"),
    ],
)
def test_a_configuration_of_a_giant_is_refused_at_once(tmp_path: Path, key: str, value: int, ours: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {key: value}))
    header = b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    with pytest.raises(DataError, match=rf"config\.json has {ours} = {value}"):
        load_model(tmp_path)


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_names_no_file_outside_its_folder(tmp_path: Path, index: str) -> None:
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(b"")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    for name, reason in (
        ("../secret.safetensors", "not there"),
        (str(secret), "not there"),
    ):
        (model / index).write_text(json.dumps({"weight_map": {"transformer.wte.weight": name}}))
        with pytest.raises(FolderError, match=reason):
            load_model(model)


def test_a_giant_pattern_of_a_tokenizer_is_never_compiled(tmp_path: Path) -> None:
    vocabulary = Tokenizer.train(["the river"], vocab_size=260)
    vocabulary.save(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+" * 5_000 + "$"},
        "behavior": "Isolated",
    }
    path.write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(DataError, match=r"tokenizer\.json.* pattern of 25,001 characters"):
        Tokenizer.load(tmp_path)


def test_a_pattern_that_never_ends_is_an_error(tmp_path: Path) -> None:
    Tokenizer.train(["the river"], vocab_size=260).save(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match="gives up on a text"):
        tokenizer.encode("a" * 200 + "b")


def test_a_checkpoint_index_that_never_ends_is_refused(tmp_path: Path) -> None:
    for content in (b"\x80" * (4 * MEBI), bytes(40) + struct.pack("<Q", 0xDB4775248B80FB57)):
        (tmp_path / "m.index").write_bytes(content)
        with pytest.raises(HeadwaterError, match=r"m\.index"):
            TensorBundle(tmp_path / "m")


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json", "csv"])
def test_a_compressed_text_above_its_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("headwater.reading.files.FileLimits.UNPACKED_CHARACTERS", 10_000)
    path = tmp_path / f"a.{suffix}.gz"
    path.write_bytes(gzip.compress(b"text\n" * (suffix == "csv") + b"0" * 2 * MEBI))
    with pytest.raises(DataError, match=r"unpacks to a text of more than [\d,]+ characters"):
        list(read_text_file(path, "text"))


def test_pages_above_their_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 4_000)
    (tmp_path / "a.html").write_bytes(b"<p>" + b"0" * 4_000)
    bomb = gzip.compress(b"0" * MEBI)
    assert pages.unpack_body(bomb, 4_001) == (b"0" * 4_001, False)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
    record = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.org/\r\n"
    record += b"Content-Type: application/http; msgtype=response\r\n"
    record += b"Content-Length: %d\r\n\r\n" % len(head + bomb)
    (tmp_path / "a.warc").write_bytes(record + head + bomb + b"\r\n\r\n")
    with pytest.raises(DataError, match=r"a\.html is larger than 4,000 bytes"):
        list(read_pages(tmp_path / "a.html", []))
    left_out = Tally()
    assert list(read_pages(tmp_path / "a.warc", [], left_out)) == []
    assert left_out.total("pages larger than 4,000 bytes") == 1


def test_a_line_above_its_limit_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.reading.files.FileLimits.LINE_BYTES", 1_000)
    monkeypatch.setattr(compressed, "_BLOCK_BYTES", 100)
    path = tmp_path / "dump.gz"
    path.write_bytes(gzip.compress(b'first\n{"text": "' + b"0" * MEBI + b'"}\nlast\n'))
    first, long, last = compressed.CompressedFile(path).lines()
    assert (first, last) == (b"first", b"last")
    assert long == b'{"text": "' + b"0" * 990  # not JSON with a shorter text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds memory as Linux does")
@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json", "csv"])
def test_a_compressed_text_that_is_a_bomb_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}.gz"
    header = gzip.compress(b"text\n" if suffix == "csv" else b"0")
    path.write_bytes(header + 16 * gzip.compress(b"0" * (64 * MEBI), 9))
    found = within(path, "text", 900 * MEBI)
    assert found.startswith("refused")
    assert "unpacks to a text of more than" in found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds memory as Linux does")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["members", "line.gz", "line.bz2", "line.zst", "headers", "payload"])
def test_bombs_stay_within_their_bounds(tmp_path: Path, name: str) -> None:
    """A gigabyte out of a megabyte: what is more than a page or line may have is left."""
    zeros = b"0" * (64 * MEBI)
    kind, limit = "pages", 900 * MEBI
    if name.startswith("line"):
        kind, path = "dump", tmp_path / name
        good = b'{"url": "http://a.org", "score": 5}\n'
        if name == "line.gz":
            with gzip.open(path, "wb") as packed:
                packed.write(good)
                for _ in range(16):
                    packed.write(zeros)
                packed.write(b"\n" + good)
        elif name == "line.bz2":
            with bz2.open(path, "wb") as packed:
                packed.write(good)
                for _ in range(16):
                    packed.write(zeros)
                packed.write(b"\n" + good)
        else:
            import zstandard

            packer = zstandard.ZstdCompressor(level=3).compressobj()
            content = packer.compress(good) + b"".join(packer.compress(zeros) for _ in range(16))
            path.write_bytes(content + packer.compress(b"\n" + good) + packer.flush())
        assert within(path, kind, limit).startswith("read 2 ['1']")
    elif name == "members":
        path = tmp_path / "a.warc.gz"
        path.write_bytes(gzip.compress(b"WARC/1.0\r\n" + b"".join(zeros for _ in range(16)), 9))
        assert within(path, kind, limit)
    else:
        path = tmp_path / "a.warc.gz"
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        if name == "headers":
            block = block[:-2] + b"".join(b"X: " + zeros[: 8 * MEBI] + b"\r\n" for _ in range(64)) + b"\r\n"
        else:
            block += zeros * 12
        record = (
            b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.org/\r\n"
            b"Content-Type: application/http; msgtype=response\r\n"
            b"Content-Length: " + str(len(block)).encode() + b"\r\n\r\n"
        )
        path.write_bytes(gzip.compress(record + block + b"\r\n\r\n", 6))
        del block
        assert within(path, kind, limit).startswith(("read 0", "refused"))
