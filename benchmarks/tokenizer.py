"""Compare speed and memory of both tokenizers with every other one that is installed.

    python benchmarks/tokenizer.py encode --text FILE --megabytes 20 --threads 1 --rounds 5
    python benchmarks/tokenizer.py gpt1 --text FILE --megabytes 5 --rounds 3
    python benchmarks/tokenizer.py signs --text FILE --megabytes 1 --rounds 3
    python benchmarks/tokenizer.py train --text FILE --megabytes 100 --vocab-size 32000 --rounds 3

Every measurement has a process of its own, so that no cache is warm and peak memory is the contender's. Contenders
take turns. A round's ratio is a peer's time over Headwater's in that round; the median over rounds is reported.
Peers that are not installed are named and left out. Ids (encode, gpt1) are compared, and a peer with other ids is
marked. --threads is also the number of processors that the process may use. Loading a vocabulary is not timed;
Headwater's check of its engine is part of loading. `signs` measures the processor time of GPT-1's encoding of one
repeated character over that of the text, for the slowest characters. Several --text files are joined. If they are
too short, the text is repeated, and a line says so.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from peak import peak_megabytes
from tokenizer_contenders import ENCODE, GPT1, TRAIN

ENCODERS = ("headwater", "gigatoken", "fastokens", "tokie", "tokenizers", "tiktoken")
TRAINERS = ("headwater", "gigatoken", "rustbpe", "sentencepiece", "bpeasy", "tokenizers")
DOCUMENT_CHARACTERS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["encode", "gpt1", "signs", "train"])
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--only", nargs="+", help="other contenders than headwater")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--many", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.file = Path(folder) / "text.txt"
        write_text(options)
        if options.what == "encode":
            for many in (False, True):
                compete(options, ENCODERS, many)
        elif options.what == "gpt1":
            compete(options, ("headwater", "original"), False)
        elif options.what == "signs":
            worst_signs(options)
        else:
            compete(options, TRAINERS, False)


def write_text(options: argparse.Namespace) -> None:
    """Join the texts, cut at the size asked for; repeat them if they are too short."""
    wanted = int(options.megabytes * 1e6)
    joined = "\n".join(path.read_text(encoding="utf-8") for path in options.text).replace("<|endoftext|>", "\n")
    data = joined.encode()
    if len(data) < wanted:
        note = f"{len(data) / 1e6:.1f} MB of distinct text, repeated to {options.megabytes:g} MB"
        print(note, file=sys.stderr)
    with options.file.open("wb") as handle:
        while wanted > len(data):
            wanted -= handle.write(data + b"\n")
        handle.write(data[:wanted].decode(errors="ignore").encode())


def compete(options: argparse.Namespace, contenders: tuple[str, ...], many: bool) -> None:
    """Let the contenders take turns and print a table."""
    chosen = [c for c in contenders if c == "headwater" or not options.only or c in options.only]
    absent = [c for c in chosen if c not in ("headwater", "original") and not importlib.util.find_spec(c)]
    present = [c for c in chosen if c not in absent]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in present}
    for turn in range(options.rounds):
        for name in present[turn % len(present) :] + present[: turn % len(present)]:
            results[name].append(run_worker(options, name, many))
    if options.json:
        sound = {name: rounds for name, rounds in results.items() if not any("error" in r for r in rounds)}
        seconds_of = {name: [r["seconds"] for r in rounds] for name, rounds in sound.items()}
        print(json.dumps({"what": options.what, "many": many, "seconds": seconds_of}))
        return
    form = "many documents" if many else "one document" if options.what != "train" else "one file"
    print(f"\n{options.what}, {options.megabytes:g} MB, {form}, {options.threads} thread(s)")
    print(f"{'':14}{'seconds':>9}{'MB/s':>9}{'peak MB':>9}{'headwater is':>14}  ids")
    ours = results["headwater"]
    for name, rounds in results.items():
        if any("error" in r for r in rounds):
            print(f"{name:14}{next(r['error'] for r in rounds if 'error' in r)}")
            continue
        seconds = statistics.median(r["seconds"] for r in rounds)
        ratio = statistics.median(r["seconds"] / o["seconds"] for r, o in zip(rounds, ours, strict=True))
        peak = max(r["peak"] for r in rounds)
        same = "" if options.what == "train" else "equal" if rounds[0]["ids"] == ours[0]["ids"] else "OTHER"
        rate = options.megabytes / seconds
        print(f"{name:14}{seconds:9.2f}{rate:9.1f}{peak:9.0f}{ratio:12.2f} x  {same}")
    if absent:
        print(f"not installed: {', '.join(absent)}")


def worst_signs(options: argparse.Namespace) -> None:
    """Print the ten characters whose repetition takes longest, over the time of as many bytes of the text."""
    from headwater.tokenizer import Tokenizer

    vocabulary = Tokenizer.load("gpt1").vocabulary
    text = options.file.read_text(encoding="utf-8")

    def loaded() -> Tokenizer:
        tokenizer = Tokenizer(vocabulary)
        tokenizer.encode("load")
        return tokenizer

    def seconds(tokenizer: Tokenizer, given: str) -> float:
        started = time.thread_time()
        tokenizer.encode(given)
        return time.thread_time() - started

    def run(sign: str, size: int) -> str:
        return sign * (size // len(sign.encode("utf-8", "surrogatepass")))

    signs, ours = representatives(), loaded()
    slowest = sorted(signs, key=lambda sign: -seconds(ours, run(sign, 30_000)))[:20]
    rounds = []
    for _ in range(options.rounds):
        prose = seconds(loaded(), text)  # by one that has not remembered anything
        rounds.append({sign: seconds(ours, run(sign, len(text.encode()))) / prose for sign in slowest})
    ratios = {sign: statistics.median(found[sign] for found in rounds) for sign in slowest}
    print(f"\nsigns, {options.megabytes:g} MB, {len(signs):,} characters tried, {options.rounds} rounds")
    for sign in sorted(slowest, key=lambda sign: -ratios[sign])[:10]:
        print(f"U+{ord(sign):04X} {unicodedata.name(sign, '')[:50]:52}{ratios[sign]:6.2f} x the text")


def representatives() -> list[str]:
    """Every character of ASCII, Latin-1 and general punctuation, and three of each kind of the others."""
    chosen, seen = [], Counter[tuple[Any, ...]]()
    for code in range(sys.maxunicode + 1):
        sign = chr(code)
        forms = [unicodedata.normalize(form, sign) != sign for form in ("NFC", "NFKC")]
        kind = (unicodedata.category(sign), unicodedata.combining(sign) > 0, sign.lower() != sign, *forms)
        if kind[0] in {"Cn", "Co"}:
            continue
        seen[kind] += 1
        if code < 0x300 or 0x2000 <= code < 0x2070 or seen[kind] <= 3:
            chosen.append(sign)
    return chosen


def run_worker(options: argparse.Namespace, name: str, many: bool) -> dict[str, Any]:
    """One measurement in a fresh process."""
    command = [sys.executable, __file__, options.what, "--text", str(options.file), "--worker", name]
    command += ["--threads", str(options.threads), "--vocab-size", str(options.vocab_size)]
    threads = str(options.threads)
    environment = os.environ | {"RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    environment["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    done = subprocess.run(
        command + ["--many"] * many, env=environment, capture_output=True, text=True, check=False
    )
    try:
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        result = {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:90]}
    return result


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one contender in this process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.threads]))
    path = options.text[0]
    if options.what == "train":
        action = TRAIN[options.worker](options)
        started = time.perf_counter()
        action(path)
        seconds = time.perf_counter() - started
        ids = ""
    else:
        text = path.read_text(encoding="utf-8")
        texts = documents(text) if options.many else [text]
        encode = (ENCODE if options.what == "encode" else GPT1)[options.worker](options)
        started = time.perf_counter()
        array, offsets = encode(texts)
        seconds = time.perf_counter() - started
        import numpy as np

        assert len(offsets) == len(texts) + 1
        ids = hashlib.sha256(np.ascontiguousarray(array, dtype=np.uint32).tobytes()).hexdigest()
    return {"seconds": seconds, "peak": peak_megabytes(), "ids": ids}


def documents(text: str) -> list[str]:
    """The text in documents of some two thousand characters."""
    return [text[start : start + DOCUMENT_CHARACTERS] for start in range(0, len(text), DOCUMENT_CHARACTERS)]


if __name__ == "__main__":
    main()
