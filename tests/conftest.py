"""What every test shares: the folder of real data, and a network that is closed."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets; the test is skipped, saying so, where there is none."""
    named = os.environ.get("HEADWATER_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("needs real data: set HEADWATER_DATA to its folder")
    return Path(named)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections beyond this machine are refused: no test may need the network."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        local = self.family == getattr(socket, "AF_UNIX", None) or (
            isinstance(address, tuple) and address[0] in {"127.0.0.1", "::1", "localhost"}
        )
        if not local:
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True, scope="session")
def _logs_of_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torchrun logs where pytest cleans up: else it leaves a folder of its own for every start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PET_LOG_DIR", str(tmp_path_factory.getbasetemp() / "torchrun"))
        yield


@pytest.fixture(scope="session")
def sample_text() -> str:
    """Some 60 kB of made-up prose in twelve documents, the same every time."""
    rng = random.Random(7)
    words = ["".join(rng.choices("aeioubcdlmnrst", k=rng.randint(2, 8))) for _ in range(300)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]

    def sentence() -> str:
        return " ".join(rng.choices(words, weights, k=rng.randint(4, 12))).capitalize() + "."

    documents = [" ".join(sentence() for _ in range(120)) for _ in range(12)]
    return "\n<|endoftext|>\n".join(documents)


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """A small tokens folder made by the stages themselves: corpus, tokenizer of 300 tokens, pack."""
    from headwater.corpus.pipeline import build
    from headwater.tokenizer import train_tokenizer
    from headwater.tokens.pack import pack

    folder = tmp_path_factory.mktemp("flow")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    build([folder / "text.txt"], folder / "corpus")
    train_tokenizer([folder / "corpus"], folder / "tokenizer", vocab_size=300)
    pack(folder / "corpus", folder / "tokenizer", folder / "tokens", 0.1)
    return folder / "tokens"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted with `record_property("counted …", number)`, in sum, as the campaign of faults does."""
    sums: dict[str, int] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, number in getattr(report, "user_properties", ()):
            if getattr(report, "when", "") == "call" and name.startswith("counted "):
                sums[name.removeprefix("counted ")] = sums.get(name.removeprefix("counted "), 0) + number
    if sums:
        terminalreporter.write_line("counted: " + ", ".join(f"{sums[name]:,} {name}" for name in sorted(sums)))
