"""Which candidate a pronoun refers to: Winograd schemas as in GPT-2, definite pronouns as in GPT-1.

Winograd (273 schemas; also the Pronoun Disambiguation Problems): Trinh and Le 2018, section 3. `full` compares
the probability of the whole sentence with each candidate instead of the pronoun; `partial` that of the text after
the candidate, given the text up to it. GPT-2 (Radford et al. 2019, section 3.4) prints partial scoring.

DPRD (Rahman and Ng 2012): GPT-1 (Radford et al. 2018, section 5) takes the candidate that gives the rest of the
sequence after the substitution the higher mean token log-probability.

A candidate that is capitalized only because it starts a sentence ("The trophy") is written in lower case in the
middle of one. The Winograd files write every pronoun as `[MASK]`, including "his" and "its"; a candidate that
replaces a possessive pronoun gets the possessive ending ("Ollie's legs ached"). If a DPRD sentence has the pronoun
twice, the question is about the first one after the conjunction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from headwater.errors import DataError
from headwater.evaluation import Choice, ContinuationRequest, Example, RequestEncoder, Source, numbered
from headwater.reading import read_text

Comparison = Literal["full", "partial", "substitution"]
_DETERMINERS = {
    "the", "a", "an", "this", "that", "these", "those", "my", "our", "your", "his", "her", "its", "their", "some",
    "any", "all", "both", "each", "every", "no", "most", "many", "several", "two", "three", "four", "five",
}  # fmt: skip

_MASK = "[MASK]"
# The words that follow a possessive pronoun in wsc273.txt (26 schemas) and PDP.txt (14), where the file has
# [MASK], and a possessive "her" in DPRD (3 sentences).
_NOUNS = """
education place empty bathroom "Dibs!" bishop turn shoulders bunk back, toy silence concentration legs arms
bassinet chest will boyfriend boss everlasting feet wing, approval innate financial hair favorite work crew
shoulder berth Sunday tail music
"""
_POSSESSED = frozenset(_NOUNS.split())
_POSSESSIVE = {"my", "your", "his", "its", "our", "their"}
_CONJUNCTION = re.compile(r"\b(?:because|since|so|but|and|although|though|as|when|while|after|before|until|if)\b")


_COMPARED: Mapping[Comparison, str] = {
    "full": "probability of the whole sentence",
    "partial": "probability of what follows the candidate",
    "substitution": "mean token log-probability of what follows the candidate",
}


def _pronouns(benchmark: str, scoring: Comparison, names: tuple[str, ...], where: str) -> Choice:
    return Choice(
        benchmark,
        f"{benchmark}.{scoring}",
        "mean" if scoring == "substitution" else "total",
        _examples,
        Source("test", names=names, where=where),
        summary=f"whom a pronoun means, by {_COMPARED[scoring]}",
        ask=partial(substituted, scoring),
    )


def _examples(path: Path) -> list[Example]:
    """Return one example for each block of sentence, pronoun, candidates and answer."""
    return numbered(
        ({"before": before, "after": after, "answers": candidates, "label": label}, text)
        for text, before, after, candidates, label in read_blocks(path)
    )


def substituted(scoring: Comparison, example: Example, encoder: RequestEncoder) -> list[ContinuationRequest]:
    """Return the text that the scoring compares, for each candidate."""
    before, after, candidates = (example.content[key] for key in ("before", "after", "answers"))
    if scoring == "full":
        return [encoder.after_start(encoder.encode(f"{before}{candidate}{after}")) for candidate in candidates]
    return [encoder.pair(f"{before}{candidate}", after) for candidate in candidates]


def read_blocks(path: Path) -> list[tuple[str, str, str, list[str], int]]:
    """Return (sentence, text before the pronoun, text after it, candidates, index of the right one) of each block.

    Raises DataError naming the line of a block that is cut short or whose answer is not a candidate.
    """
    lines = read_text(path).split("\n")
    items = []
    number = 0
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        block = [line.strip() for line in lines[number : number + 4]]
        if len(block) < 4 or not all(block):
            raise DataError(f"{path} line {number + 1}: a block is cut short", expected="four lines")
        sentence, pronoun, listed, answer = block
        candidates = [" ".join(part.split()) for part in listed.split(",")]
        right = [
            i for i, candidate in enumerate(candidates) if candidate.lower() == " ".join(answer.split()).lower()
        ]
        span = _place(sentence, pronoun)
        if not right or span is None or len(candidates) < 2 or not all(candidates):
            raise DataError(f"{path} line {number + 1}: {answer!r} or {pronoun!r} does not fit its block")
        before, after = sentence[: span[0]].rstrip(), sentence[span[1] :].lstrip()
        space = "" if not before else " "
        written = [_in_place(candidate, before) for candidate in candidates]
        if _is_possessive(pronoun, after):
            written = [f"{one}'" if one.endswith("s") else f"{one}'s" for one in written]
        glue = "" if after[:1] in {"", "'", ".", ",", ";", "!", "?"} else " "
        items.append((sentence, before + space, glue + after, written, right[0]))
        number += 4
    return items


def _place(sentence: str, pronoun: str) -> tuple[int, int] | None:
    """Return where the pronoun is: of several, the first after the first conjunction."""
    matches = list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", sentence))
    if not matches:
        return None
    conjunction = _CONJUNCTION.search(sentence)
    start = conjunction.end() if conjunction else 0
    return next((match for match in matches if match.start() >= start), matches[0]).span()


def _is_possessive(pronoun: str, after: str) -> bool:
    """Return whether the pronoun, or the one that `[MASK]` replaces, is possessive."""
    if pronoun in {_MASK, "her"}:
        first = after.split(maxsplit=1)[:1]
        return bool(first) and first[0].rstrip(".") in _POSSESSED
    return pronoun.lower() in _POSSESSIVE


def _in_place(candidate: str, before: str) -> str:
    first, _, rest = candidate.partition(" ")
    begins = not before or before[-1] in ".!?:" or before.endswith(('."', '!"', '?"'))
    if begins:
        return candidate[0].upper() + candidate[1:]
    return f"{first.lower()} {rest}".strip() if first.lower() in _DETERMINERS else candidate


_WSC = ("wsc273.txt",)
_WSC_WHERE = "The Winograd Schema Challenge collection of E. Davis, in the five-line form of bert-commonsense"
TASKS = [
    _pronouns("wsc273", "full", _WSC, _WSC_WHERE),
    _pronouns("wsc273", "partial", _WSC, _WSC_WHERE),
    _pronouns("pdp", "full", ("PDP.txt",), _WSC_WHERE),
    _pronouns("pdp", "partial", ("PDP.txt",), _WSC_WHERE),
    _pronouns(
        "dprd",
        "substitution",
        ("dprd/test.c.txt", "test.c.txt"),
        "The definite pronoun set of Rahman and Ng, UT Dallas",
    ),
]
