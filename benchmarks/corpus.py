"""Speed and growth of the corpus stages, beside datatrove's own steps where it has them.

    python benchmarks/corpus.py extract --warc FILE... --pages 300 --rounds 3
    python benchmarks/corpus.py near --text FILE --documents 5000 --rounds 3
    python benchmarks/corpus.py growth --text FILE --documents 10000 100000 1000000
    python benchmarks/corpus.py workers --text FILE --documents 100000 --workers 2
    python benchmarks/corpus.py fetch --hosts 200 --pages 10 --delay 0.2

extract, near and growth count processor seconds of the process and of its children, so that other work on the
machine matters little; contenders take turns, and the median ratio over rounds is what counts. workers and fetch
are wall-clock and want a machine of their own. near also says recall and precision against exact Jaccard of all
pairs that share a 5-gram. Every figure is printed as one JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SIMILARITY = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["extract", "near", "growth", "workers", "fetch"])
    parser.add_argument("--warc", type=Path, nargs="+")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000])
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # a contender in a process of its own: its name and the folder with what it works on
        ONE[options.one[0]](Path(options.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        {"extract": extract, "near": near, "growth": growth, "workers": workers, "fetch": fetch}[options.what](
            options, Path(folder)
        )


def extract(options: argparse.Namespace, folder: Path) -> None:
    """WARC to the main text of pages."""
    (folder / "in").mkdir()
    pages, size = write_warc(options.warc, folder / "in" / "pages.warc.gz", options.pages)
    (folder / "one" / "in").mkdir(parents=True)  # the same work on one page: what starting costs
    write_warc(options.warc, folder / "one" / "in" / "pages.warc.gz", 1)
    say(case="extract", pages=pages, megabytes=round(size / 1e6, 2))
    compete("extract", ["headwater-extract", "datatrove-extract"], folder, options.rounds)


def near(options: argparse.Namespace, folder: Path) -> None:
    """Near-duplicate removal with 14 x 8 hashes on both sides."""
    texts = make_texts(options.text, options.documents[0])
    (folder / "in").mkdir()
    (folder / "in" / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    say(case="near", documents=len(texts), megabytes=round(sum(map(len, texts)) / 1e6, 1))
    compete("near", ["headwater-near", "datatrove-near"], folder, options.rounds)
    quality(texts, folder)


def growth(options: argparse.Namespace, folder: Path) -> None:
    """Processor time and memory of a whole build against the number of documents."""
    for count in options.documents:
        source = folder / "source"
        write_rows(options.text, source, count)
        out = folder / "corpus"
        seconds, peak = measure(["-m", "headwater", "corpus", "build", str(source), "--out", str(out), *STEPS])
        say(case="growth", documents=count, microseconds_a_document=round(seconds / count * 1e6, 1), peak_mb=peak)
        shutil.rmtree(out)
        shutil.rmtree(source)


def workers(options: argparse.Namespace, folder: Path) -> None:
    """Wall-clock time of one worker and of several, in turn."""
    source, out = folder / "source", folder / "corpus"
    write_rows(options.text, source, options.documents[0])
    times: dict[int, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for count in (1, options.workers):
            begun = time.perf_counter()
            run(
                [
                    "-m",
                    "headwater",
                    "corpus",
                    "build",
                    str(source),
                    "--out",
                    str(out),
                    "--workers",
                    str(count),
                    *STEPS,
                ]
            )
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
    """Pages a second against a web on this machine, beside what the delay allows at most."""
    import socket

    from headwater.corpus.fetch import FetchConfig, fetch_links
    from headwater.corpus.links import gather_links

    with loopback() as port:
        original = socket.getaddrinfo
        socket.getaddrinfo = lambda host, *a, **k: original("127.0.0.1", *a, **k)  # type: ignore[assignment]
        post = {"score": 5, "created_utc": 1_400_000_000, "subreddit": "r"}
        urls = [f"http://h{h}.test:{port}/{p}" for p in range(options.pages) for h in range(options.hosts)]
        (folder / "dump.jsonl").write_text("".join(json.dumps(post | {"url": url}) + "\n" for url in urls))
        gather_links([folder / "dump.jsonl"], folder / "links")
        config = FetchConfig(delay=options.delay, allow_private=True, hosts=options.hosts)
        wall, processor = time.perf_counter(), time.process_time()
        found = fetch_links(folder / "links", folder / "pages", config)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    least = (options.pages + 1) * options.delay  # robots.txt is a visit as well
    say(
        case="fetch",
        pages=found["pages"],
        seconds=round(wall, 2),
        pages_a_second=round(found["pages"] / wall, 1),
        seconds_that_delays_take=round(least, 2),
        processor_share=round(processor / wall, 2),
    )


STEPS = ["--set", "clean=true", "--set", "near_duplicates=true"]


def headwater_extract(folder: Path) -> None:
    from headwater.corpus.extract import Extractor
    from headwater.corpus.pages import read_pages

    with Extractor() as extractor:
        for path in sorted((folder / "in").iterdir()):
            for _ in extractor.texts(read_pages(path, [])):
                pass


def datatrove_extract(folder: Path) -> None:
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.readers import WarcReader

    reader = WarcReader(str(folder / "in"), glob_pattern="*.warc.gz")
    for _ in Trafilatura(timeout=20).run(reader.run(None, 0, 1), 0, 1):
        pass


def headwater_near(folder: Path) -> None:
    import numpy as np

    from headwater.corpus.near_duplicates import MinHash, find_duplicates

    texts = read_texts(folder)
    maker = MinHash(14, 8)
    np.save(folder / "keys.npy", np.stack([maker.keys(text) for text in texts]))
    find_duplicates([folder / "keys.npy"], lambda wanted: ((n, texts[n]) for n in wanted), folder / "scratch")


def datatrove_near(folder: Path) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupSignature,
    )

    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    places = {name: str(folder / name) for name in ("signatures", "buckets", "remove")}
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    documents = (Document(text=text, id=str(n)) for n, text in enumerate(read_texts(folder)))
    list(MinhashDedupSignature(places["signatures"], config).run(documents, 0, 1) or [])
    buckets = MinhashDedupBuckets(places["signatures"], places["buckets"], config=config)
    for bucket in range(14):
        list(buckets.run(None, bucket, 14) or [])
    list(MinhashDedupCluster(places["buckets"], places["remove"], config=config).run(None, 0, 1) or [])


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


def quality(texts: list[str], folder: Path) -> None:
    """Recall of documents that have an earlier one like them that stays, and precision of those that go."""
    import numpy as np

    from headwater.corpus.near_duplicates import MinHash, find_duplicates, jaccard

    maker = MinHash()
    np.save(folder / "keys.npy", np.stack([maker.keys(text) for text in texts]))
    gone = find_duplicates(
        [folder / "keys.npy"], lambda wanted: ((n, texts[n]) for n in wanted), folder / "scratch"
    )
    sets = [maker.shingles(text) for text in texts]
    having: dict[int, list[int]] = defaultdict(list)
    for number, shingles in enumerate(sets):
        for shingle in shingles.tolist():
            having[shingle].append(number)
    pairs = {
        (a, b) for numbers in having.values() for i, a in enumerate(numbers[:50]) for b in numbers[i + 1 : 50]
    }
    like = [(a, b) for a, b in pairs if jaccard(sets[a], sets[b]) >= SIMILARITY]
    should = {b for a, b in like if a not in gone}
    rightly = sum(jaccard(sets[a], sets[b]) >= SIMILARITY for a, b in gone.items())
    say(
        case="near",
        recall=round(sum(b in gone for b in should) / len(should), 4),
        precision=round(rightly / len(gone), 4),
    )


def make_texts(text: Path, count: int) -> list[str]:
    """Pieces of a text, half of them followed by copies with some words changed."""
    generator = random.Random(1)
    words = text.read_text(encoding="utf-8").split()
    texts: list[str] = []
    while len(texts) < count:
        start = generator.randrange(len(words) - 500)
        piece = words[start : start + generator.randint(80, 400)]
        texts.append(" ".join(piece))
        for _ in range(generator.choice([0, 0, 1, 2])):
            rate = generator.choice([0.002, 0.005, 0.01, 0.02, 0.04])
            texts.append(" ".join(w if generator.random() > rate else generator.choice(words) for w in piece))
    return texts[:count]


def read_texts(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / "in" / "texts.jsonl").open(encoding="utf-8")]


def write_rows(text: Path, source: Path, count: int, rows: int = 5000) -> None:
    """`count` documents of some 600 characters in files of `rows`; one in ten is a near copy of the one before."""
    generator = random.Random(2)
    words = text.read_text(encoding="utf-8").split()
    source.mkdir()
    last: list[str] = []
    for first in range(0, count, rows):
        with (source / f"{first:09d}.jsonl").open("w", encoding="utf-8") as handle:
            for _ in range(min(rows, count - first)):
                if last and generator.random() < 0.1:
                    piece = [*last, "and", "more"]
                else:
                    piece = (
                        generator.sample(words, 20) + words[(s := generator.randrange(len(words) - 100)) : s + 80]
                    )
                handle.write(json.dumps({"text": " ".join(piece)}) + "\n")
                last = piece


def write_warc(sources: list[Path], path: Path, count: int) -> tuple[int, int]:
    """The HTML pages of some WARC files again and again, `count` in all; returns how many and their bytes."""
    from headwater.corpus.pages import read_pages

    pages = [page for source in sources for page in read_pages(source, []) if page.kind == "html"]
    size = 0
    with path.open("wb") as handle:
        for number in range(count):
            page = pages[number % len(pages)]
            http = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset={page.charset or 'utf-8'}\r\n\r\n".encode()
            )
            block = http + page.data
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2020-01-01T00:00:00Z\r\nWARC-Record-ID: "
                f"<urn:uuid:{number:032x}>\r\nWARC-Target-URI: http://a.org/{number}\r\nContent-Type: "
                f"application/http; msgtype=response\r\nWARC-Identified-Payload-Type: text/html\r\n"
                f"Content-Length: {len(block)}\r\n\r\n"
            )
            handle.write(gzip.compress(head.encode() + block + b"\r\n\r\n"))
            size += len(page.data)
    return count, size


@contextlib.contextmanager
def loopback() -> Iterator[int]:
    """A web server whose every page is the same short story."""
    body = b"<html><body><article><p>" + b"The river ran on. " * 100 + b"</p></article></body></html>"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    missing = b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n"
    ready: dict[str, Any] = {}
    started = threading.Event()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(missing if b" /robots.txt " in head else answer)
                await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1000)
        ready.update(
            port=server.sockets[0].getsockname()[1], loop=asyncio.get_running_loop(), stop=asyncio.Event()
        )
        started.set()
        await ready["stop"].wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait()
    yield ready["port"]
    ready["loop"].call_soon_threadsafe(ready["stop"].set)
    thread.join(5)


def measure(arguments: list[str]) -> tuple[float, int]:
    """Processor seconds and peak megabytes of a Python process with its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "module = sys.argv[0] == '-m'\n"
        "sys.argv = sys.argv[module:]\n"
        "try:\n"
        "    if module:\n"
        "        runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
        "    else:\n"
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


def say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
