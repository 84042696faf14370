"""Measure how fast a Bloom filter takes in the 8-grams of a text, and its memory next to the least possible.

    python benchmarks/overlap.py --text BOOK.txt --megabytes 1000

The text is repeated, each time with its letters exchanged in another way, so that no 8-gram occurs twice and words
keep their lengths. A Bloom filter of n grams with false positive rate p needs at least n · ln(1/p) / ln(2)² bits.
Times are processor seconds of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import string
import tempfile
import time
from pathlib import Path

from peak import forget_peak, peak_megabytes

DOCUMENT = 200_000  # characters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.jsonl"
        write(arguments.text, path, arguments.megabytes * 1_000_000)
        measure(path)


def write(source: Path, path: Path, size: int) -> None:
    """Write a file of documents with at least `size` characters in all."""
    text = source.read_text(encoding="utf-8").encode("ascii", "ignore").decode()
    letters = string.ascii_lowercase
    written = 0
    with path.open("w", encoding="utf-8") as handle:
        for number in range(size):  # ends much earlier
            other = "".join(random.Random(number).sample(letters, len(letters))) if number else letters
            exchanged = text.translate(str.maketrans(letters + letters.upper(), other + other.upper()))
            for start in range(0, len(exchanged), DOCUMENT):
                handle.write(json.dumps({"text": exchanged[start : start + DOCUMENT]}) + "\n")
                written += min(DOCUMENT, len(exchanged) - start)
                if written >= size:
                    return


def measure(path: Path) -> None:
    """Build the filter, and print its time and memory."""
    from headwater.corpus import training_grams

    forget_peak()
    before, started = peak_megabytes(), time.process_time()
    grams = training_grams(path)
    seconds = time.process_time() - started
    needed = grams.count * math.log(1 / grams.filter.bound) / math.log(2) ** 2 / 8 / 1024**2
    added = peak_megabytes() - before
    size = path.stat().st_size / 1e6
    print(
        f"{size:,.0f} MB, {grams.count:,} grams: {size / seconds:.1f} MB/s; the bound needs {needed:,.0f} MB, the "
        f"process took {added:,.0f} MB more than before, × {added / needed:.3f}"
    )


if __name__ == "__main__":
    main()
