"""How many files of the package a reader opens to follow one value, from where it comes in to where it goes out.

The walk is repeated before it is measured, so that caches are filled and nothing is imported or opened any more;
a cold walk is not: it has every file from the command to the result.
"""

from __future__ import annotations

import gc
import gzip
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np
import pytest

import headwater as hw
from headwater.cli.main import main
from headwater.corpus import build_corpus, extract_page, read_pages
from headwater.finetuning import ExampleSampler, Raw
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import usable
from headwater.model import build_model, preset, save_model
from headwater.pretraining import Sampler, TokenStream, l1
from headwater.serve import serve
from headwater.storage import Stage
from headwater.training import Measurement, Run, TrainConfig, Trainer

PACKAGE = Path(hw.__file__).parent
REPEATED = 2


class Walk:
    """The files of the package in which functions are called, in the order of their first calls."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.measures = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if self.measures and event == "call" and path.startswith(str(PACKAGE)):
            self.files[Path(path).relative_to(PACKAGE).as_posix()] = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        gc.collect()
        gc.disable()  # what ends an object of an earlier test is no step of the walk
        self.measures = True
        try:
            yield
        finally:
            self.measures = False
            gc.enable()


@pytest.fixture
def walk() -> Iterator[Walk]:
    """A walk in this thread and in those that start during the test."""
    own = Walk()
    before = sys.getprofile()
    threading.setprofile(own)
    sys.setprofile(own)
    yield own
    sys.setprofile(before)
    threading.setprofile(None)


def files_of(walk: Walk, action: Callable[[], object]) -> list[str]:
    for _ in range(REPEATED):
        action()
    with walk.measured():
        action()
    return list(walk.files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["the river runs to the sea. "] * 9
    tokenizer = hw.Tokenizer.train(texts, vocab_size=280, special_tokens=["<|endoftext|>"])
    folder = tmp_path_factory.mktemp("model")
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64)
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


def test_a_completion_walks_through_10_files(walk: Walk, folder: Path) -> None:
    lm = hw.load(folder)
    files = files_of(walk, lambda: lm.generate("the river", max_tokens=4, seed=1))
    assert len(files) <= 10, files


def test_a_completion_over_http_walks_through_17_files(walk: Walk, folder: Path) -> None:
    """The first request of a server, for which nothing but the server was opened, walks through one more."""
    answers: list[httpx.Response] = []
    cold: dict[str, None] = {}

    def ask(address: str) -> None:
        body = {"model": folder.name, "prompt": "the river", "max_tokens": 4}
        try:
            with httpx.Client(base_url=address, trust_env=False) as client:
                with walk.measured():
                    answers.append(client.post("/v1/completions", json=body))
                cold.update(walk.files)
                walk.files.clear()
                files_of(walk, lambda: answers.append(client.post("/v1/completions", json=body)))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    serve([str(folder)], port=0, ready=lambda address: threading.Thread(target=ask, args=(address,)).start())
    assert [answer.status_code for answer in answers] == [200] * (REPEATED + 2)
    assert len(walk.files) <= 17, " ".join(walk.files)
    assert len(cold) <= 18, list(cold)


def test_a_batch_walks_through_11_files(walk: Walk, tmp_path: Path) -> None:
    with Stage(tmp_path / "tokens", kind="tokens", config={}, inputs={}).write() as work:
        np.save(work / "train-00000.npy", np.arange(500, dtype=np.uint16) % 256)
    config = TrainConfig(steps=9, batch_size=4, micro_batch=2, precision="fp32")
    trainer = Trainer(build_model(preset("gpt2-pico", vocabulary=256, context=16), seed=1), l1(), config)
    source = Sampler(TokenStream(tmp_path / "tokens", "train", 16), 4, 2, seed=5)
    run = Run(trainer, config, source, validate=lambda: Measurement({}, ()))
    # The rate is given: a batch does not pass through the schedule.
    files = files_of(walk, lambda: trainer.update(run.read(trainer.step), learning_rate=1e-3))
    assert len(files) <= 11, files


def test_a_row_of_a_csv_file_walks_through_11_files(walk: Walk, folder: Path, tmp_path: Path) -> None:
    """From the table of a user to the batch that is learned; the header is read before the measured rows."""
    path = tmp_path / "labelled.csv"
    path.write_text("text,label\n" + "the river,a\nthe sea,b\n" * 1_000, encoding="utf-8")
    tokenizer = hw.Tokenizer.load(folder).with_task_tokens()

    def learn_rows() -> None:
        rows = read_table(path, "classify", Columns()).rows
        with walk.measured() if repeated.pop() else nullcontext():
            kept = usable(map(Raw.composed, rows), "classify", "labelled.csv").rows
            labels = learn_labels(kept, "classify", None, "labelled.csv")
            targets = labels.targets(kept, "labelled.csv")
            encoded = encode(kept, "classify", tokenizer, 64, targets=targets, name="labelled.csv")
            ExampleSampler(encoded, labels.probabilities(encoded), batch_size=4, seed=1).micro_batches(0)

    repeated = [True, *[False] * REPEATED]
    for _ in range(REPEATED + 1):
        learn_rows()
    assert len(walk.files) <= 11, " ".join(walk.files)


def test_a_page_of_a_warc_walks_through_11_files_of_corpus(walk: Walk, tmp_path: Path) -> None:
    """A cold walk, from the call to the Parquet file; 7 more files are configuration and storage."""
    pytest.importorskip("fastwarc")
    pytest.importorskip("resiliparse")
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>" + b"The river runs to the sea. " * 9
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: {len(page)}\r\n"
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(head.encode() + b"\r\n" + page + b"\r\n\r\n"))
    with walk.measured():
        build_corpus([tmp_path / "a.warc.gz"], tmp_path / "out")
        extract_page(*read_pages(tmp_path / "a.warc.gz", []))  # as the extracting process does
    corpus = [name for name in walk.files if name.startswith("corpus/")]
    assert len(corpus) <= 11, corpus
    assert len(walk.files) <= 18, " ".join(walk.files)
    building = [name.removeprefix("corpus/building/") for name in corpus if "building" in name]
    assert building[0] == "pipeline.py"
    order = ["plan.py", "phases.py", "parts.py"]
    assert [name for name in building if name in order] == order, "no later step is called before an earlier one"


def test_a_row_from_finetune_to_its_result(walk: Walk, folder: Path, tmp_path: Path) -> None:
    """From the command to the report, every file in which a function is called; the first command imports them."""
    table = tmp_path / "labelled.csv"
    table.write_text("text,label\n" + "".join(f"the river {n},a\nthe sea {n},b\n" for n in range(9)))
    given = ["finetune", "--model", str(folder), "--task", "classify", "--train", str(table), "--epochs", "1"]
    assert main([*given, "--out", str(tmp_path / "first")]) == 0
    with walk.measured():
        assert main([*given, "--out", str(tmp_path / "second")]) == 0
    tuning = [name for name in walk.files if name.startswith("finetuning/") and name.endswith(".py")]
    assert len(tuning) <= 25, tuning
    assert len(walk.files) <= 79, " ".join(walk.files)
