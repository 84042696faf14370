"""What every test shares: golden and real data, a closed network, and a list of agreed skips."""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import signal
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A busy machine must not fail a test.
settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")

TESTS = Path(__file__).parent / "tests"
GOLDEN = TESTS / "golden"
AGREED = tomllib.loads((TESTS / "skips.toml").read_text(encoding="utf-8"))["skip"]

# Commands that tests start speak English, whatever the locale.
os.environ["LC_ALL"] = "C.UTF-8"

# Golden data lie where real data would: tests, and the commands they start, find the original vocabularies.
if not Path(os.environ.get("HEADWATER_DATA") or "-").is_dir():
    os.environ["HEADWATER_DATA"] = str(GOLDEN)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what earlier runs left in the user's cache folder out of the tests, and theirs out of it."""
    with pytest.MonkeyPatch.context() as patched:
        if "HEADWATER_CACHE" not in os.environ:
            patched.setenv("HEADWATER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets; the test is skipped where there is none.

    No guarantee may rest on it: use `golden_data`.
    """
    folder = Path(os.environ["HEADWATER_DATA"])
    if folder == GOLDEN:
        pytest.skip("needs real data: set HEADWATER_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def golden_data() -> Path:
    """What the original programs give, in the repository: see its README."""
    return GOLDEN


def is_agreed(reason: str) -> bool:
    """Whether skips.toml has a skip with this reason for this platform."""
    return any(
        re.search(skip["reason"], reason)
        and sys.platform in skip.get("on", [sys.platform])
        and (skip.get("ci", True) or os.environ.get("CI") != "true")
        for skip in AGREED
    )


def reason_of(report: Any) -> str:
    """Why a test or a file was skipped."""
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


class Skips:
    """Collects skips that nobody agreed on; they fail the run, also where its tests run in several processes."""

    def __init__(self) -> None:
        self.unexpected: dict[str, str] = {}  # test or file -> reason

    def look(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and not is_agreed(reason_of(report)):
            self.unexpected[report.nodeid] = reason_of(report)

    # With xdist both reach the process that the user started, from all workers.
    pytest_runtest_logreport = look
    pytest_collectreport = look

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in sorted(self.unexpected.items()):
            terminalreporter.write_line(
                f"UNEXPECTED SKIP {test}: {reason} (agreed ones: tests/skips.toml)", red=True
            )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the skips, in the process that reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(), "agreed-skips")


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


Ended = Callable[..., list[str]]


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return `ended(signal, step, rank=0)`: arguments for Python in place of `-m headwater`.

    The process of that rank then sends the signal to itself after that update, once.
    """

    def arguments(number: signal.Signals, step: int, rank: int = 0) -> list[str]:
        marker = tmp_path_factory.mktemp("ended") / "sent"
        return [str(TESTS / "ended.py"), *map(str, (int(number), rank, step, marker))]

    return arguments


@pytest.fixture(scope="session")
def is_slow() -> dict[str, bool]:
    """Every test as `tests/file.py::name`, and whether `make test` leaves it out."""
    root = Path(__file__).parent
    found = {}
    files = (path for tests in (root / "tests", root / "papers" / "tests") for path in tests.rglob("test_*.py"))
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
        all_are = any(mark.startswith("pytestmark") and "pytest.mark.slow" in mark for mark in marks)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                own = "pytest.mark.slow" in map(ast.unparse, node.decorator_list)
                name = f"{path.relative_to(root).as_posix()}::{node.name}"
                found[name] = own or all_are
    return found


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
    from headwater.corpus.building.pipeline import build_corpus
    from headwater.pretraining.tokens.pack import pack
    from headwater.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("flow")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    build_corpus([folder / "text.txt"], folder / "corpus")
    train_tokenizer([folder / "corpus"], folder / "tokenizer", vocab_size=300)
    pack(folder / "corpus", folder / "tokenizer", folder / "tokens", 0.1)
    return folder / "tokens"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("needs Chromium: install Debian's package chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        yield playwright.chromium.launch(executable_path=chromium, args=arguments)


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[[Sequence[Any]], Path]:
    """A function that writes documents as a corpus folder of its own."""
    from headwater.corpus import write_documents
    from headwater.storage import Stage

    made: list[Path] = []

    def make(documents: Sequence[Any]) -> Path:
        out = tmp_path / f"corpus-{len(made)}"
        with Stage(out, kind="corpus", config={}, inputs={}).write() as work:
            labels = dict.fromkeys(label for document in documents for label in document.labels)
            write_documents(documents, work, list(labels))
        made.append(out)
        return out

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted with `record_property("counted …", number)`, in sum, as the campaign of faults does."""
    sums: dict[str, int] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, number in getattr(report, "user_properties", ()):
            if getattr(report, "when", "") == "call" and name.startswith("counted "):
                sums[name.removeprefix("counted ")] = sums.get(name.removeprefix("counted "), 0) + number
    if sums:
        terminalreporter.write_line("counted: " + ", ".join(f"{sums[name]:,} {name}" for name in sorted(sums)))
