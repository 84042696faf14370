"""Measure speed, growth and quality of the corpus stages, next to datatrove's steps if it has them.

    python benchmarks/corpus.py marked --marked FOLDER...
    python benchmarks/corpus.py checkouts --trafilatura CHECKOUT --readability CHECKOUT
    python benchmarks/corpus.py extract --marked FOLDER... --pages 300 --rounds 3
    python benchmarks/corpus.py near --text FILE... --documents 5000 --rounds 3 [--alone]
    python benchmarks/corpus.py growth --text FILE... --documents 10000 100000 1000000
    python benchmarks/corpus.py workers --text FILE... --documents 100000 --workers 2
    python benchmarks/corpus.py fetch --hosts 200 --pages 10 --delay 0.2 --latency 0.05

marked compares the words that extractors keep with those that people marked (`corpus_data.read_marked` names the
two data sets). checkouts does so with the pages in checkouts of adbar/trafilatura (F of wanted and unwanted
chunks of text) and mozilla/readability (F1 of words), for the half on which the rules were chosen and the
held-out one. extract, near and growth count processor seconds of the process and its children, so that other
work on the machine matters little; contenders take turns, and the median ratio over rounds is reported. workers
and fetch measure wall-clock time and need a quiet machine. near also reports recall and precision against exact
Jaccard similarity on the first documents; with --alone it leaves datatrove out. Each figure is a JSON object on a
line.

datatrove 0.10's MinHash needs xxhash below 4.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from corpus_data import loopback, make_texts, read_marked, read_texts, write_rows, write_warc
from corpus_quality import checkouts, marked, quality, say

BANDS, ROWS = 16, 7  # on both sides
STEPS = ["--set", "clean=true", "--set", "near_duplicates=true"]


def main() -> None:
    cases = {
        "marked": marked,
        "checkouts": checkouts,
        "extract": extract,
        "near": near,
        "growth": growth,
        "workers": workers,
        "fetch": fetch,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=cases)
    parser.add_argument("--marked", type=Path, nargs="+", help="folders of marked pages")
    parser.add_argument("--trafilatura", type=Path, help="a checkout of adbar/trafilatura")
    parser.add_argument("--readability", type=Path, help="a checkout of mozilla/readability")
    parser.add_argument("--warc", type=Path, nargs="+", help="for extract: pages of these instead")
    parser.add_argument("--text", type=Path, nargs="+")
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000])
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds before a page answers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, nargs=2, default=(4, 18), help="of a document of near")
    parser.add_argument("--alone", action="store_true", help="for near: without datatrove")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # a contender in a process of its own: its name and the folder with what it works on
        ONE[options.one[0]](Path(options.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        cases[options.what](options, Path(folder))


def extract(options: argparse.Namespace, folder: Path) -> None:
    """Compare WARC to clean documents here with WARC to main text in datatrove."""
    from headwater.corpus import read_pages

    pages = [(html, "") for place in options.marked or [] for _, html, _ in read_marked(place)]
    for source in options.warc or []:
        pages += [(page.data, page.charset) for page in read_pages(source, []) if page.kind == "html"]
    (folder / "in").mkdir()
    count, size = write_warc(pages, folder / "in" / "pages.warc.gz", options.pages)
    (folder / "one" / "in").mkdir(parents=True)  # the same work on one page: what starting costs
    write_warc(pages, folder / "one" / "in" / "pages.warc.gz", 1)
    say(case="extract", pages=count, megabytes=round(size / 1e6, 2))
    compete("extract", ["headwater-extract", "datatrove-extract"], folder, options.rounds)


def near(options: argparse.Namespace, folder: Path) -> None:
    """Compare the removal of near duplicates with the same number of bands and rows."""
    contenders = ["headwater-near"] if options.alone else ["headwater-near", "datatrove-near"]
    for count in options.documents:
        write_rows(make_texts(options.text, count, options.sentences), folder / "in")
        size = sum(path.stat().st_size for path in (folder / "in").iterdir())
        say(case="near", documents=count, megabytes=round(size / 1e6, 1))
        compete("near", contenders, folder, options.rounds)
        quality(folder, contenders)
        shutil.rmtree(folder)
        folder.mkdir()


def growth(options: argparse.Namespace, folder: Path) -> None:
    """Measure processor time and memory of a whole build over the number of documents."""
    source, out = folder / "source", folder / "corpus"
    start_up = 0.0
    for count in [1, *options.documents]:
        write_rows(make_texts(options.text, count, (3, 9)), source)
        seconds, peak = measure(["-m", "headwater", "corpus", "build", str(source), "--out", str(out), *STEPS])
        start_up = start_up or seconds
        if count > 1:
            each = round((seconds - start_up) / count * 1e6, 1)
            say(case="growth", documents=count, microseconds_a_document=each, peak_mb=peak)
        shutil.rmtree(out)
        shutil.rmtree(source)


def workers(options: argparse.Namespace, folder: Path) -> None:
    """Measure the wall-clock time of one worker and of several, in turns."""
    source, out = folder / "source", folder / "corpus"
    write_rows(make_texts(options.text, options.documents[0], (3, 9)), source)
    command = ["-m", "headwater", "corpus", "build", str(source), "--out", str(out), *STEPS]
    times: dict[int, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for count in (1, options.workers):
            begun = time.perf_counter()
            run([*command, "--workers", str(count)])
            times[count].append(time.perf_counter() - begun)
            shutil.rmtree(out)
    ratio = statistics.median(a / b for a, b in zip(times[1], times[options.workers], strict=True))
    say(
        case="workers",
        workers=options.workers,
        seconds={n: [round(t, 2) for t in s] for n, s in times.items()},
        speedup=round(ratio, 2),
    )


def fetch(options: argparse.Namespace, folder: Path) -> None:
    """Measure pages per second from a web server here, next to the least time that delays and answers take."""
    import socket

    from headwater.corpus import FetchConfig, fetch_links, gather_links

    with loopback(options.latency) as port:
        original = socket.getaddrinfo
        socket.getaddrinfo = lambda host, *a, **k: original("127.0.0.1", *a, **k)  # type: ignore[assignment]
        post = {"score": 5, "created_utc": 1_400_000_000, "subreddit": "r"}
        urls = [f"http://h{h}.test:{port}/{p}" for p in range(options.pages) for h in range(options.hosts)]
        (folder / "dump.jsonl").write_text("".join(json.dumps(post | {"url": url}) + "\n" for url in urls))
        gather_links([folder / "dump.jsonl"], folder / "links")
        (folder / "one.jsonl").write_text(json.dumps(post | {"url": urls[0]}) + "\n")
        gather_links([folder / "one.jsonl"], folder / "one")
        fetch_links(folder / "one", folder / "warm", FetchConfig(delay=0, allow_private=True))  # start-up
        config = FetchConfig(delay=options.delay, allow_private=True, hosts=options.hosts)
        wall, processor = time.perf_counter(), time.process_time()
        found = fetch_links(folder / "links", folder / "pages", config)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    # robots.txt is a visit as well; the delay counts from the end of an answer
    polite = options.pages * options.delay + (options.pages + 1) * options.latency
    say(
        case="fetch",
        hosts=options.hosts,
        delay=options.delay,
        latency=options.latency,
        pages=found["pages"],
        seconds=round(wall, 2),
        pages_a_second=round(found["pages"] / wall, 1),
        seconds_that_politeness_takes=round(polite, 2),
        processor_share=round(processor / wall, 2),
        limited_by="politeness" if polite > 0.8 * wall else "processor" if processor > 0.8 * wall else "waiting",
    )


def headwater_extract(folder: Path) -> None:
    from headwater.corpus import build_corpus, load_recipe

    build_corpus([folder / "in"], folder / "out", load_recipe("webtext", {"near_duplicates": False}))


def datatrove_extract(folder: Path) -> None:
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.readers import WarcReader

    reader = WarcReader(str(folder / "in"), glob_pattern="*.warc.gz")
    for _ in Trafilatura(timeout=20).run(reader.run(None, 0, 1), 0, 1):
        pass


def headwater_near(folder: Path) -> None:
    import numpy as np

    from headwater.corpus import BuildConfig, build_corpus, read_documents

    shutil.rmtree(folder / "out", ignore_errors=True)
    build_corpus([folder / "in"], folder / "out", BuildConfig(near_duplicates=True))
    kept = Counter(document.text for document in read_documents(folder / "out"))
    removed = []
    for number, text in enumerate(read_texts(folder / "in")):
        if kept[text]:  # of equal texts the first is kept
            kept[text] -= 1
        else:
            removed.append(number)
    np.save(folder / "headwater-near.npy", np.array(removed))


def datatrove_near(folder: Path) -> None:
    import numpy as np
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupSignature,
    )

    config = MinhashConfig(n_grams=5, num_buckets=BANDS, hashes_per_bucket=ROWS)
    places = {name: str(folder / name) for name in ("signatures", "buckets", "remove")}
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    documents = (Document(text=text, id=str(n)) for n, text in enumerate(read_texts(folder / "in")))
    list(MinhashDedupSignature(places["signatures"], config).run(documents, 0, 1) or [])
    buckets = MinhashDedupBuckets(places["signatures"], places["buckets"], config=config)
    for bucket in range(BANDS):
        list(buckets.run(None, bucket, BANDS) or [])
    list(MinhashDedupCluster(places["buckets"], places["remove"], config=config).run(None, 0, 1) or [])
    removed = b"".join(path.read_bytes() for path in sorted(Path(places["remove"]).glob("*.remove")))
    np.save(folder / "datatrove-near.npy", np.sort(np.frombuffer(removed, "<u4")))


ONE: dict[str, Callable[[Path], None]] = {
    "headwater-extract": headwater_extract,
    "datatrove-extract": datatrove_extract,
    "headwater-near": headwater_near,
    "datatrove-near": datatrove_near,
}


def compete(case: str, contenders: list[str], folder: Path, rounds: int) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in contenders:
            spent, peak = measure([__file__, case, "--one", name, str(folder)])
            idle, _ = (
                measure([__file__, case, "--one", name, str(folder / "one")]) if case == "extract" else (0.0, 0)
            )
            seconds[name].append(max(spent - idle, 1e-9))
            say(case=case, contender=name, seconds=round(spent, 2), start_up=round(idle, 2), peak_mb=peak)
    ours, *others = contenders
    for name in others:
        ratio = statistics.median(b / a for a, b in zip(seconds[ours], seconds[name], strict=True))
        say(case=case, contender=name, times_of_ours=round(ratio, 2))


def measure(arguments: list[str]) -> tuple[float, int]:
    """Return the processor seconds of a Python process with its children, and its peak memory in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import os, runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "module = sys.argv[0] == '-m'\n"
        "sys.argv = sys.argv[module:]\n"
        "try:\n"
        "    if module:\n"
        "        runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
        "    else:\n"
        "        sys.path.insert(0, os.path.dirname(sys.argv[0]))\n"
        "        runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        # Not getrusage: its peak is that of the parent at the moment of forking where that was higher.
        "print('PEAK', next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))\n"
    )
    output = run(["-c", code, *arguments])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = next(int(line.split()[1]) for line in output.splitlines() if line.startswith("PEAK "))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak // 1024


def run(arguments: list[str]) -> str:
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.stderr[-2000:])
    return ended.stdout


if __name__ == "__main__":
    main()
