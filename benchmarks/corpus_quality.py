"""What benchmarks/corpus.py measures of quality: words that extractors keep, and near copies that leave."""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus_data import half_of, read_chunks, read_marked, read_readability, read_texts

SIMILARITY = 0.8
SAMPLE = 5000


def marked(options: argparse.Namespace, folder: Path) -> None:
    """Measure token F1, precision and recall of the main text, as means over pages."""
    for place in options.marked:
        rows = list(read_marked(place))
        for name, text_of in extractors().items():
            scores = [(k, token_f1(text_of(html), text)) for k, html, text in rows]
            for which, chosen in (
                ("articles", [s for k, s in scores if k == "article"]),
                ("all", [s for _, s in scores]),
            ):
                means = [round(statistics.mean(s[i] for s in chosen), 4) for i in range(3)]
                say(
                    case="marked",
                    set=str(place),
                    pages=which,
                    count=len(chosen),
                    extractor=name,
                    f1=means[0],
                    precision=means[1],
                    recall=means[2],
                )


def checkouts(options: argparse.Namespace, folder: Path) -> None:
    """Measure the main text on the annotated pages of two other projects.

    Of trafilatura's chunks the scores count over all pages; white space and soft hyphens are not compared.
    """
    from headwater.corpus import Page, extract_page

    def normal(text: str) -> str:
        return " ".join(text.replace("\xad", "").split())

    for name, text_of in extractors().items():
        counts: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for url, html, wanted, unwanted in read_chunks(options.trafilatura) if options.trafilatura else ():
            text = normal(text_of(html))
            right = sum(normal(chunk) in text for chunk in wanted)
            count = (right, sum(normal(chunk) in text for chunk in unwanted), len(wanted) - right)
            for which in (half_of(url), "all"):
                counts[which].append(count)
        for which, found in sorted(counts.items()):
            right, wrong, missed = map(sum, zip(*found, strict=True))
            say(
                case="checkouts",
                set="trafilatura",
                pages=which,
                count=len(found),
                extractor=name,
                f1=round(2 * right / (2 * right + wrong + missed), 4),
                precision=round(right / (right + wrong), 4),
                recall=round(right / (right + missed), 4),
            )
        words: dict[str, list[float]] = defaultdict(list)
        for key, html, expected in read_readability(options.readability) if options.readability else ():
            gold = extract_page(Page("", expected.encode(), kind="book", charset="utf-8")).text  # all of its text
            for which in (half_of(key), "all"):
                words[which].append(token_f1(text_of(html), gold)[0])
        for which, scores in sorted(words.items()):
            mean = round(statistics.mean(scores), 4)
            say(case="checkouts", set="readability", pages=which, count=len(scores), extractor=name, f1=mean)


def extractors() -> dict[str, Callable[[bytes], str]]:
    """Return the extractors of main text that are compared: ours, and trafilatura."""
    import trafilatura

    from headwater.corpus import Page, extract_page

    return {
        "headwater": lambda html: extract_page(Page("", html)).text,
        "trafilatura": lambda html: trafilatura.extract(html, include_comments=False) or "",
    }


def token_f1(found: str, wanted: str) -> tuple[float, float, float]:
    """Return (F1, precision, recall) of the words of a text, with repetitions, in any order."""
    one, other = (Counter(re.findall(r"\w+", text.lower())) for text in (found, wanted))
    common = (one & other).total()
    if not one and not other:
        return 1.0, 1.0, 1.0
    if not common:
        return 0.0, 0.0, 0.0
    return 2 * common / (one.total() + other.total()), common / one.total(), common / other.total()


def quality(folder: Path, contenders: list[str]) -> None:
    """Compare what each contender removed of the first SAMPLE documents with the exact Jaccard of their pairs.

    Recall: of pairs at SIMILARITY or above, those of which a document went. Precision: of documents that went,
    those that have another at SIMILARITY or above.
    """
    import numpy as np

    from headwater.corpus import split_words

    sets = []
    for _, text in zip(range(SAMPLE), read_texts(folder / "in"), strict=False):
        words = split_words(text)
        sets.append(set(zip(*(words[start:] for start in range(5)), strict=False)))
    having: dict[Any, list[int]] = defaultdict(list)
    for number, shingles in enumerate(sets):
        for shingle in shingles:
            having[shingle].append(number)
    pairs = {
        (a, b) for numbers in having.values() for i, a in enumerate(numbers[:50]) for b in numbers[i + 1 : 50]
    }
    like = [(a, b) for a, b in pairs if len(sets[a] & sets[b]) >= SIMILARITY * len(sets[a] | sets[b])]
    alike = {number for pair in like for number in pair}
    for name in contenders:
        every = np.load(folder / f"{name}.npy")
        gone = {int(n) for n in every if n < len(sets)}
        say(
            case="near",
            contender=name,
            removed=len(every),
            recall=round(sum(a in gone or b in gone for a, b in like) / len(like), 4),
            precision=round(len(gone & alike) / len(gone), 4),
        )


def say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)
