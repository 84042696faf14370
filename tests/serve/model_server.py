"""Small models of every kind and a server of them: a process of its own on loopback, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch

import headwater as hw
from headwater.finetuning import FineTuned, Labels, TaskModel, TaskName
from headwater.model import build_model, preset, save_model
from headwater.serve import ServeConfig
from headwater.serve.opening import open_models
from headwater.serve.served import Served

TEXTS = ["the river runs to the sea. ", "a stone lies in the river. "]


@dataclass
class Running:
    """A server process and where it listens."""

    process: subprocess.Popen[str]
    url: str

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=600, trust_env=False)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stderr:
                self.process.stderr.close()


def start(*arguments: str) -> Running:
    """`headwater serve` on a free port, once it listens."""
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--precision", "fp32", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        found = re.search(r"at (http://\S+:\d+)", line)
        if found:
            return Running(process, found[1])
    process.wait()
    process.stderr.close()
    raise AssertionError(said)


def opened(*models: str, slots: int, precision: str = "fp32") -> list[Served]:
    """The models of a server that is part of the test's process."""
    return open_models(ServeConfig(models=[*models], precision=precision, max_concurrency=slots))


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = hw.Tokenizer.train(TEXTS, kind="gpt2", vocab_size=280, special_tokens=["<|endoftext|>"])
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    folder = tmp_path_factory.mktemp("served")
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="session")
def speakers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer has the added token <speaker1>."""
    special = ["<|endoftext|>", "<speaker1>"]
    tokenizer = hw.Tokenizer.train(TEXTS, kind="gpt2", vocab_size=280, special_tokens=special)
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    folder = tmp_path_factory.mktemp("speakers")
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="session")
def lstm_folder(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = hw.Tokenizer.load(base_folder)
    config = preset("lstm-nano", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    folder = tmp_path_factory.mktemp("lstm")
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sky", "river", "is", "blue", "##s", ".", "a"]
    folder = tmp_path_factory.mktemp("masked")
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    shape = {"vocabulary": len(words), "context": 40, "layers": 2, "width": 32, "heads": 2, "init_deviation": 0.3}
    save_model(build_model(preset("bert-base", **shape), seed=1), folder, tokenizer=hw.Tokenizer.load(folder))
    return folder


@pytest.fixture(scope="session")
def task_folders(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fine-tuned folder of each kind, its weights random, by task."""
    tokenizer = hw.Tokenizer.load(base_folder).with_task_tokens()
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    meanings: dict[TaskName, Labels] = {
        "classify": Labels(target="class", names=["sea", "stone"]),
        "entail": Labels(target="class", names=["no", "yes"]),
        "similarity": Labels(target="score", levels=[0.0, 1.0, 2.0]),
        "choice": Labels(target="answer"),
    }
    folders = {}
    for task, labels in meanings.items():
        model = TaskModel(build_model(config, seed=2), task, labels.outputs, dropout=0.1)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in model.head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        folders[task] = tmp_path_factory.mktemp(task)
        FineTuned.of(model.eval(), tokenizer, labels).save(folders[task])
    return {**folders}


@pytest.fixture(scope="session")
def server(
    base_folder: Path,
    lstm_folder: Path,
    masked_folder: Path,
    speakers_folder: Path,
    task_folders: dict[str, Path],
) -> Iterator[Running]:
    """The base model as `base`, an LSTM as `lstm`, the classifier as `classes`, the others by their task.

    A masked model is `blanks`, one with an added token `speakers`.
    """
    named = {"base": base_folder, "lstm": lstm_folder, "classes": task_folders["classify"], **task_folders}
    named |= {"blanks": masked_folder, "speakers": speakers_folder}
    del named["classify"]
    running = start(*(part for name, folder in named.items() for part in ("--model", f"{name}={folder}")))
    yield running
    said = running.process.poll()
    assert said is None, running.process.stderr.read() if running.process.stderr else said
    assert running.stop() == 0


@pytest.fixture(scope="session")
def http(server: Running) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def start_server() -> Callable[..., Running]:
    return start
