"""What a person sees of a stage: how long it still takes, and a terminal that is theirs again when it fails."""

from __future__ import annotations

import builtins
import errno
import io
import math
import os
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import typer
from typer.main import get_command

from headwater.cli import console, main
from headwater.display import byte_size, duration
from headwater.errors import DataError, resumable
from headwater.storage import INTERACTIVE


def test_the_time_left_of_a_resumed_stage_ignores_earlier_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = console.PlainProgress()
    progress.start("pre-training", 10_000, "updates")
    progress.advance(5_000)  # what was done before
    now[0] += 10
    progress.advance(5_010, loss=3.0)
    assert "5,010 of 10,000 updates, loss 3, 1 h 23 min left" in capsys.readouterr().err


def fail_in_a_stage(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Run a command that raises in its second stage; its first did not end."""

    class Command:
        def main(self, *_: Any, **__: Any) -> None:
            progress = console.terminal_progress()
            progress.start("a stage", 10, "steps")
            progress.start("the next", 10, "steps")
            raise error

    monkeypatch.setattr(main, "get_command", lambda app: Command())
    assert main.main([]) in {1, 130}


def test_a_stage_that_fails_is_ended_before_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    fail_in_a_stage(monkeypatch, DataError("it broke"))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "the next …",
        "the next: stopped (0.0 s)",
        "Error: it broke.",
    ]


@pytest.mark.parametrize("error", [DataError("it broke"), KeyboardInterrupt()])
def test_a_live_display_ends_before_the_error_is_printed(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    fail_in_a_stage(monkeypatch, error)
    hide, show = "\x1b[?25l", "\x1b[?25h"
    shown = terminal.getvalue()
    assert shown.count(hide) == shown.count(show) == 2
    assert "✗ the next: stopped" in shown
    assert shown.rindex(show) < max(shown.rfind("it broke"), shown.rfind("Interrupted"))


@pytest.mark.parametrize("resumes", [True, False])
def test_only_a_resumable_command_announces_that_it_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], resumes: bool
) -> None:
    def interrupted() -> None:
        print("half a sentence", end="", flush=True)
        with resumable() if resumes else nullcontext():
            raise KeyboardInterrupt

    app = typer.Typer()
    app.command()(interrupted)
    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: get_command(app))
    assert main.main(["doctor"]) == 130
    said = capsys.readouterr().err
    assert said.startswith("\nInterrupted.")
    assert ("Run the same command again to resume" in said) == resumes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (3_599.7, "1 h 00 min"),
        (math.inf, "–"),
    ],
)
def test_a_duration_is_rounded_into_its_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (999_949, "999.9 kB"), (999_960, "1.0 MB"), (999_960_000, "1.00 GB")]
)
def test_a_size_is_rounded_into_its_unit(count: int, text: str) -> None:
    assert byte_size(count) == text


class _Gone(io.TextIOBase):
    """A stream whose terminal is gone, or whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", [console.PlainProgress, console.LiveProgress])
def test_work_continues_when_its_terminal_is_gone(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All updates were done, and the model was not written."""
    progress = kind()
    progress.interval_seconds = 0.0
    monkeypatch.setattr(sys, "stderr", _Gone())
    progress.start("pre-training", 10, "updates")
    for done in range(10):
        progress.advance(done, loss=3.0)
    progress.note("a note")
    progress.finish()


@pytest.mark.parametrize("interactive", [True, False])
def test_a_notebook_shows_progress_and_a_script_none(
    interactive: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    if not interactive:
        monkeypatch.delattr(builtins, "__IPYTHON__")
    INTERACTIVE.start("pre-training", 10, "updates")
    INTERACTIVE.finish("model")
    assert ("pre-training: model" in capsys.readouterr().err) is interactive
