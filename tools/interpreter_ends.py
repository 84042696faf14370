"""End the interpreter again and again while threads are in the kernels, with the program of test_dispatch.py.

    python tools/interpreter_ends.py --runs 2000

During every second hundred of runs, other processes keep the CPU busy. torch is imported once, and each run is a
fork of that process. Exits with 1 if a run exits with another status than 0 or prints to standard error.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch  # noqa: F401 -- every run needs it

from headwater import native

PROGRAM = Path(__file__).parents[1] / "tests/native/test_dispatch.py"


def busy(count: int) -> list[int]:
    """Start processes that only use the CPU, and return their ids."""
    started = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            while True:
                pass
        started.append(pid)
    return started


def stop(processes: list[int]) -> None:
    """Stop the processes that `busy` started."""
    for pid in processes:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def main() -> None:
    """Run the program. In a child, return, so that its interpreter exits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 1), help="busy processes")
    arguments = parser.parse_args()
    program = runpy.run_path(str(PROGRAM))["COMPUTING_AT_THE_END"]
    variants, results = native.available(), Counter[str]()
    load: list[int] = []
    for run in range(arguments.runs):
        if run % 100 == 0:
            stop(load)
            load = busy(arguments.busy) if run % 200 else []
            print(f"{run} runs, {results.total()} failed", flush=True)
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if pid == 0:
                os.dup2(said.fileno(), 2)
                sys.argv = ["-c", variants[run % len(variants)]]
                exec(program, {"__name__": "__main__"})
                return
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
        if status or lines:
            results[
                f"{variants[run % len(variants)]}: status {status}, {lines[-1] if lines else 'nothing said'}"
            ] += 1
    stop(load)
    print(f"{arguments.runs} runs, {len(variants)} variants: {results.total()} failed")
    for result, count in results.items():
        print(f"{count} x {result}")
    sys.exit(bool(results))


if __name__ == "__main__":
    main()
