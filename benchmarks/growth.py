"""Measure how time and memory of the corpus's stages grow: each at 1, 10 and 100 units of synthetic data.

    python benchmarks/growth.py                          # all stages, 10,000 documents or links a unit
    python benchmarks/growth.py near overlap --unit 1000

Each size runs in a process of its own. A line has processor time and peak memory beyond those of a run on 100
items, divided by the number of further items, and the last line of a stage compares the largest size with the
smallest: a ratio of one is linear growth. Documents have about 60 words of a Zipf distribution; one link in 30
is of one host.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from peak import peak_megabytes

WORDS, VOCABULARY = 60, 50_000
FILES = 5000  # documents in a file
START = 100  # items of the run whose time and memory are subtracted


def texts(count: int) -> Iterator[str]:
    """Yield synthetic documents; one in twenty nearly repeats the one before."""
    words = np.array([f"w{number:x}" for number in range(VOCABULARY)])
    generator = np.random.default_rng(1)
    before = ""
    for number in range(count):
        if number % 20 == 19:
            yield before + " again"
            continue
        drawn = np.minimum(generator.zipf(1.3, WORDS), VOCABULARY) - 1
        before = " ".join(words[drawn])
        yield before


def write_texts(count: int, folder: Path) -> None:
    folder.mkdir()
    handle = None
    for number, text in enumerate(texts(count)):
        if number % FILES == 0:
            if handle:
                handle.close()
            handle = (folder / f"{number // FILES:06d}.jsonl").open("w", encoding="utf-8")
        print(json.dumps({"text": text}), file=handle)
    if handle:
        handle.close()


def write_dumps(count: int, folder: Path) -> None:
    folder.mkdir()
    post = {"score": 5, "created_utc": 1_400_000_000, "subreddit": "r"}
    for start in range(0, count, 20_000):
        with (folder / f"RS_{start:09d}.jsonl").open("w", encoding="utf-8") as handle:
            for number in range(start, min(count, start + 20_000)):
                host = "giant" if number % 30 == 0 else f"h{number * 7919 % max(1, count // 5)}"
                print(json.dumps(post | {"url": f"http://{host}.org/{number}"}), file=handle)


def links(folder: Path) -> None:
    from headwater.corpus import gather_links

    gather_links(sorted((folder / "in").iterdir()), folder / "out")


def build(folder: Path) -> None:
    from headwater.corpus import build_corpus

    build_corpus([folder / "in"], folder / "out")


def near(folder: Path) -> None:
    from headwater.corpus import BuildConfig, build_corpus

    build_corpus([folder / "in"], folder / "out", BuildConfig(near_duplicates=True))


def overlap(folder: Path) -> None:
    from headwater.corpus import measure_overlap

    (folder / "test.txt").write_text("<|endoftext|>".join(texts(1000)))
    (folder / "train.jsonl").write_text("".join(path.read_text() for path in sorted((folder / "in").iterdir())))
    measure_overlap(folder / "train.jsonl", [folder / "test.txt"])


def statistics(folder: Path) -> None:
    from headwater.corpus import statistics as measure

    measure(folder / "in")


def pack(folder: Path) -> None:
    from headwater.pretraining import pack as pack_tokens

    pack_tokens(folder / "in", "gpt2", folder / "out", 0.05)


def write_corpus(count: int, folder: Path) -> None:
    from headwater.corpus import Document, write_documents
    from headwater.storage import Stage

    with Stage(folder, kind="corpus", config={}, inputs={}).write() as work:
        write_documents((Document(f"{number:032x}", text) for number, text in enumerate(texts(count))), work)


STAGES: dict[str, tuple[Callable[[int, Path], None], Callable[[Path], None]]] = {
    "links": (write_dumps, links),
    "build": (write_texts, build),
    "near": (write_texts, near),
    "overlap": (write_texts, overlap),
    "statistics": (write_corpus, statistics),
    "pack": (write_corpus, pack),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--unit", type=int, default=10_000)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := {*options.stages} - {*STAGES}:
        parser.error(f"there is no stage {min(unknown)}, only {', '.join(STAGES)}")
    if options.one:
        run_one(options.stages[0], Path(options.one))
        return
    for stage in options.stages or STAGES:
        start = measure(stage, START)
        found = []
        for times in options.times:
            count = times * options.unit
            seconds, megabytes = measure(stage, count)
            more = count - START
            each = (seconds - start[0]) / more * 1e6, max(0.0, megabytes - start[1]) / more * 1e6
            found.append(each)
            say(stage=stage, items=count, microseconds_an_item=round(each[0], 2), bytes_an_item=round(each[1], 1))
        say(stage=stage, last_to_first=round(found[-1][0] / found[0][0], 2))


def measure(stage: str, count: int) -> tuple[float, float]:
    """Return processor seconds and peak memory in MB of a stage on so many items."""
    with tempfile.TemporaryDirectory() as folder:
        STAGES[stage][0](count, Path(folder) / "in")
        ran = subprocess.run(
            [sys.executable, __file__, stage, "--one", folder], capture_output=True, text=True, check=True
        )
    measured = json.loads(ran.stdout.splitlines()[-1])
    return measured["seconds"], measured["megabytes"]


def run_one(stage: str, folder: Path) -> None:
    begun = time.process_time()
    STAGES[stage][1](folder)
    say(seconds=time.process_time() - begun, megabytes=peak_megabytes())


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
