"""A process that has imported Headwater and forks a child for each command line, so that a kill costs little.

Run as a script. Requests come as JSON lines on stdin, one reply each on stdout when its child is gone:
{"id", "arguments", "folder", "kill_after", "kill_group", "file_bytes", "obeys_permissions", "clock_back"}
gives {"id", "status", "output", "seconds"}. `status` is negative for a signal, as in `subprocess`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import io
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import Any

# What the commands import when they are called; a library that starts threads when imported is not among them.
_WARM = (
    "headwater.cli.main",
    *(f"headwater.cli.{name}" for name in ("corpus", "tokenizer", "pack", "pretrain", "finetune", "predict")),
    *(f"headwater.cli.{name}" for name in ("evaluate", "convert", "report", "quickstart")),
    "headwater_papers.command",
    "headwater_papers.reproduction",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "headwater.quickstart.flow",
    "headwater.quickstart.samples",
    "headwater.convert.gguf",
    "headwater.corpus.web.fetch",
    "headwater.finetuning.predict",
    "pyarrow.parquet",
    "tokenizers",
    "safetensors.torch",
    "zstandard",
    "aiohttp",
    "jinja2",
    "gguf",
    "sklearn.metrics",
    "torch.distributed.checkpoint",
)
_CAP_DAC_OVERRIDE = 1


def main() -> None:
    for name in _WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    running: dict[int, Child] = {}
    waiting = b""
    while True:
        ready, _, _ = select.select([0, *(child.pipe for child in running.values())], [], [], 0.002)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                child = Child(json.loads(line))
                running[child.process] = child
        for process, child in list(running.items()):
            reply = child.look()
            if reply is not None:
                del running[process]
                print(json.dumps(reply), file=answers, flush=True)


class Child:
    """One command line in a process of its own."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request, self.output = request, b""
        self.pipe, written = os.pipe()
        fcntl.fcntl(self.pipe, fcntl.F_SETFL, os.O_NONBLOCK)
        self.started = time.monotonic()
        self.process = os.fork()
        if not self.process:
            os.close(self.pipe)
            run(request, written)
        os.close(written)

    def look(self) -> dict[str, Any] | None:
        """Read what it said, kill it when its time has come; what is to be replied once it is gone."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.pipe, 1 << 16):
                self.output += data
        took = time.monotonic() - self.started
        limit = self.request.get("kill_after")
        process, status = os.waitpid(self.process, os.WNOHANG)
        if not process:
            if limit is not None and took >= limit:
                with contextlib.suppress(ProcessLookupError):
                    (os.killpg if self.request.get("kill_group") else os.kill)(self.process, signal.SIGKILL)
            return None
        with contextlib.suppress(ProcessLookupError):  # workers of a dead command are not left to the next one
            os.killpg(self.process, signal.SIGKILL)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.pipe, 1 << 16):
                self.output += data
        os.close(self.pipe)
        return {
            "id": self.request["id"],
            "status": os.waitstatus_to_exitcode(status),
            "output": self.output.decode("utf-8", "replace"),
            "seconds": took,
        }


def run(request: dict[str, Any], written: int) -> None:
    """In the child: the command line under its faults; does not return."""
    status = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(request["folder"])
        if request.get("obeys_permissions"):
            give_up_override()
        if request.get("clock_back"):
            turn_clock_back()
        if request.get("file_bytes") is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
        from headwater.cli.main import main as headwater

        sys.argv = ["headwater", *request["arguments"]]
        status = headwater(request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def give_up_override() -> None:
    """Let a process of root obey the permissions of files, as anybody's does."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    data[0] &= ~(1 << _CAP_DAC_OVERRIDE)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def turn_clock_back() -> None:
    """A wall clock that goes back an hour each time it is read; the monotonic one cannot."""
    import datetime

    now = time.time()
    state = {"now": now}

    def back() -> float:
        state["now"] -= 3600.0
        return state["now"]

    class Back(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(back(), tz)

    time.time = back
    time.time_ns = lambda: int(back() * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith("headwater") and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = Back  # type: ignore[attr-defined]


if __name__ == "__main__":
    assert isinstance(sys.stdout, io.TextIOWrapper)
    main()
