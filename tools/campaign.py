"""Run the campaign of faults end to end and print its figures, as docs/guarantees.md shows them.

    python tools/campaign.py --jobs 2                  # all of it: hours
    python tools/campaign.py --only kills --only warc  # parts of it; --list names them
    python tools/campaign.py --seconds 20              # a short fuzz of each parser

Each part runs in a process of its own and writes its log below --out. A part that finds a fault fails the
campaign. Fuzzing needs `pip install atheris`. Parsers that reach C run under AddressSanitizer, which atheris
contains.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FUZZ = ROOT / "tests" / "fuzz"
# Parsers that hand outside bytes to C: fastwarc, resiliparse, expat, zlib, bz2, zstandard, pyarrow, safetensors.
IN_C = {
    *("warc", "html", "wikipedia", "epub", "link-dumps", "model-folder", "tokenizer-files", "tables"),
    "evaluation-sets",
}
WANTED = {"kills": 300, "mutations": 2000}  # The least counts of a complete campaign.
# Flipped bits in each file, more than the tests flip by default. Each file has about eight other mutations.
FLIPS = 12
_COUNTED = re.compile(r"([\d,]+) ([a-z- ]+?)(?:,|$)")


@dataclass
class Part:
    """One command of the campaign, and what it counted."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    read: Callable[[str], dict[str, float]] = lambda log: {}
    status: int = -1
    seconds: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)

    def run(self, out: Path) -> None:
        """Run the command, with its output in a log."""
        log = out / f"{self.name}.log"
        started = time.monotonic()
        with log.open("wb") as handle:
            ran = subprocess.run(
                self.command, cwd=ROOT, env=os.environ | self.environment, stdout=handle, stderr=subprocess.STDOUT
            )
        self.status, self.seconds = ran.returncode, time.monotonic() - started
        self.counts = self.read(log.read_text(encoding="utf-8", errors="replace"))
        print(
            f"{self.name}: {'ended well' if self.status == 0 else f'FAILED, see {log}'}",
            file=sys.stderr,
            flush=True,
        )


def pytest_part(name: str, *arguments: str, **environment: str) -> Part:
    """Return a part of tests whose counts conftest.py prints."""
    options = ["-q", "-p", "no:cacheprovider", *arguments]
    command = [sys.executable, "-m", "pytest", *options]
    read = read_soak if name == "soak" else read_counted
    return Part(name, command, {"OMP_NUM_THREADS": "1", **environment}, read)


def read_soak(log: str) -> dict[str, float]:
    """Return what was counted, and two of the figures that test_soak.py prints."""
    found = read_counted(log)
    for key, what in {
        "fresh / idle": "times an idle server's median",
        "memory growth": "times the memory",
    }.items():
        printed = re.search(rf"'{key}': ([\d.]+)", log)
        found |= {what: round(float(printed[1]), 2)} if printed else {}
    return found


def read_counted(log: str) -> dict[str, float]:
    """Return `{what: number}` of the line that begins with `counted:`."""
    found = re.findall(r"^counted: (.*)$", log, re.M)
    return {what: int(number.replace(",", "")) for line in found for number, what in _COUNTED.findall(line)}


def fuzz_part(target: str, seconds: int, out: Path) -> Part:
    """Return the fuzzing of one parser. Its findings go to the findings folder and fail it."""
    places = ["--work", str(out / "corpus"), "--findings", str(out / "findings")]
    command = [sys.executable, str(FUZZ / "fuzz.py"), target, "--seconds", str(seconds), *places]
    return Part(f"fuzz-{target}", command, sanitizers() if target in IN_C else {}, read_executions)


def read_executions(log: str) -> dict[str, float]:
    """Return how many inputs libFuzzer reports."""
    found = re.search(r"stat::number_of_executed_units: (\d+)", log)
    return {"inputs": int(found[1])} if found else {}


def sanitizers() -> dict[str, str]:
    """Return the environment that preloads AddressSanitizer; empty without atheris."""
    specification = importlib.util.find_spec("atheris")
    if specification is None or specification.origin is None:
        return {}
    package = Path(specification.origin).parent
    library = next((p for p in (package.parent, package) if (p / "asan_with_fuzzer.so").exists()), None)
    # Python does not free its memory on exit, and torch has allocation operators of its own.
    options = "detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1"
    return {"LD_PRELOAD": str(library / "asan_with_fuzzer.so"), "ASAN_OPTIONS": options} if library else {}


def targets() -> list[str]:
    """Return the names of the parsers that are fuzzed: each has a folder of seeds."""
    return sorted(path.name for path in (FUZZ / "seeds").iterdir() if path.is_dir())


def parts(seconds: int, out: Path) -> list[Part]:
    """Return all parts of the campaign, the longest first."""
    return [
        pytest_part("kills", "tests/faults/test_kills.py", HEADWATER_FAULTS_KILLS=str(WANTED["kills"])),
        pytest_part("disturbances", "tests/faults/test_disturbed.py"),
        pytest_part("mutations", "tests/faults/test_mutations.py", HEADWATER_FAULTS_FLIPS=str(FLIPS)),
        pytest_part("hostile", "tests/faults/test_hostile_input.py", "tests/faults/test_power_cut.py"),
        *(fuzz_part(target, seconds, out) for target in targets()),
        pytest_part("soak", "-s", "tests/faults/test_soak.py", HEADWATER_SOAK_SECONDS="300"),
    ]


def summary(done: list[Part]) -> str:
    """Return the counts as a Markdown table."""
    lines = ["| part | counted | seconds | result |", "|---|---|---:|---|"]
    for part in done:
        counts = ", ".join(f"{number:,} {what}" for what, number in part.counts.items()) or "–"
        result = "0 wrong" if part.status == 0 else "**FAILED**"
        result += ", with AddressSanitizer" if "LD_PRELOAD" in part.environment else ""
        lines.append(f"| {part.name} | {counts} | {part.seconds:,.0f} | {result} |")
    return "\n".join(lines)


def shortfalls(done: list[Part]) -> list[str]:
    """Return the counts of the finished parts that are below `WANTED`."""
    found = []
    for what, wanted in WANTED.items():
        if any(part.name == what for part in done):
            total = sum(part.counts.get(what, 0) for part in done)
            found += [f"{total:,} {what}, {wanted:,} are wanted"] if total < wanted else []
    return found


def main() -> int:
    """Run the parts and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time")
    parser.add_argument("--seconds", type=int, default=600, help="seconds of fuzzing for each parser")
    parser.add_argument("--only", action="append", help="a part, or a parser; repeatable")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "campaign")
    parser.add_argument("--list", action="store_true", help="print the names of the parts and exit")
    options = parser.parse_args()
    chosen = parts(options.seconds, options.out)
    if options.list:
        print("\n".join(part.name for part in chosen))
        return 0
    if options.only:
        unknown = [n for n in options.only if not any(n in {p.name, p.name.removeprefix("fuzz-")} for p in chosen)]
        if unknown:
            parser.error(f"no part is called {unknown[0]}: --list names them")
        chosen = [p for p in chosen if p.name in options.only or p.name.removeprefix("fuzz-") in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda part: part.run(options.out), chosen))
    print(summary(chosen))
    for line in shortfalls(chosen):
        print(f"Too few: {line}.")
    return int(any(part.status for part in chosen) or bool(shortfalls(chosen)))


if __name__ == "__main__":
    sys.exit(main())
