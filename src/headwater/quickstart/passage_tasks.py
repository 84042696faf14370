"""Make labelled data from any text in any language.

`continuation`: choose, among four, the passage that follows. Passages form groups of four, from one document if it
has enough. Each is a question with the continuations of all four as answers, so that the answers alone reveal
nothing. `context + answers[label]` is a piece of the text.

`source`: predict the source of a passage: its package in `python-docs`, else its file. For a text with one source,
predict whether the words of a passage are shuffled. Half of the passages are; each is used once, and white space
is normalised in all, so that only the order of words tells them apart and a bag of words stays at chance.

Passages do not overlap. Those of the training part are examples for training, those of the held-out part for
validation. Of a long text the passages with the lowest hash of (seed, id, place) are used, to bound memory.
"""

from __future__ import annotations

import random
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.corpus import Document, Part, rank

LabelledRow = dict[str, Any]
LabelledRows = dict[Part, list[LabelledRow]]

CLASSES = 8
CHOICES = 4
# (minimum, maximum) examples of a class; the maximum is enough for a fine-tuning of some minutes.
CLASS_EXAMPLES: dict[Part, tuple[int, int]] = {"train": (60, 400), "validation": (8, 60)}
CHOICE_EXAMPLES: dict[Part, int] = {"train": 4000, "validation": 500}
CONTEXT_CHARACTERS = 240
CONTINUATION_CHARACTERS = 120
PASSAGE_CHARACTERS = 360
# How many characters before the exact place a cut may be at white space; scripts without spaces are cut anywhere.
_REACH = 40
AS_WRITTEN, SHUFFLED = "as written", "words shuffled"
# Candidates for classes; a corpus with more sources uses the first of them.
_CANDIDATES = 1000


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    rank: int
    document: str
    context: str
    answer: str = ""


def continuation_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"context", "question", "answers", "label"} rows, CHOICES answers each."""
    kept: dict[Part, list[_Piece]] = {"train": [], "validation": []}
    for part, document in parts:
        for index, (start, middle, end) in enumerate(_pieces(document.text)):
            piece = _Piece(
                rank(seed, document.id, str(index)),
                document.id,
                document.text[start:middle],
                document.text[middle:end],
            )
            _keep(kept[part], piece, CHOICE_EXAMPLES[part])
    rows: LabelledRows = {"train": [], "validation": []}
    seen: set[str] = set()
    for part, lowest in kept.items():
        pieces = [piece for piece in lowest if piece.answer not in seen]
        pieces = list({piece.answer: piece for piece in reversed(pieces)}.values())[::-1]
        seen.update(piece.answer for piece in pieces)
        rows[part] = _continuations(pieces, seed)
    return rows


def source_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"text", "label"} rows: by package or file, or as written against shuffled."""
    by_source: dict[Part, dict[str, list[_Piece]]] = {"train": {}, "validation": {}}
    everything: dict[Part, list[_Piece]] = {"train": [], "validation": []}
    for part, document in parts:
        pieces = [
            _Piece(rank(seed, document.id, str(index)), document.id, document.text[start:end])
            for index, (start, _, end) in enumerate(_pieces(document.text))
        ]
        most = CLASS_EXAMPLES[part][1]
        source = document.labels.get("package") or document.source
        for piece in pieces:
            _keep(everything[part], piece, CLASSES * most)
            if source in by_source[part] or len(by_source[part]) < _CANDIDATES:
                _keep(by_source[part].setdefault(source, []), piece, most)
    rows = _grouped(by_source, seed)
    return rows if rows["train"] else _shuffled(everything, seed)


def _pieces(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield (start, middle, end) of the consecutive passages of a text."""
    start = 0
    while start + PASSAGE_CHARACTERS <= len(text):
        middle = _cut_before(text, start + CONTEXT_CHARACTERS)
        end = _cut_before(text, middle + CONTINUATION_CHARACTERS)
        yield start, middle, end
        start = end


def _cut_before(text: str, exact: int) -> int:
    """Return the last white space at most _REACH characters before `exact`, else `exact`."""
    for index in range(exact, exact - _REACH, -1):
        if text[index : index + 1].isspace():
            return index
    return exact


def _continuations(pieces: list[_Piece], seed: int) -> list[LabelledRow]:
    documents: dict[str, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        documents[piece.document].append(piece)
    groups: list[list[_Piece]] = []
    rest: list[_Piece] = []
    for neighbours in documents.values():
        whole = len(neighbours) // CHOICES * CHOICES
        groups += [neighbours[i : i + CHOICES] for i in range(0, whole, CHOICES)]
        rest += neighbours[whole:]
    groups += [rest[i : i + CHOICES] for i in range(0, len(rest) - CHOICES + 1, CHOICES)]
    questions = [[(piece.context.lstrip(), piece.answer) for piece in group] for group in groups]
    return _choice_rows(questions, seed)


def _choice_rows(groups: list[list[tuple[str, str]]], seed: int) -> list[LabelledRow]:
    """Return a question for each (context, answer) of each group, with all answers of the group to choose from.

    Within a group the right answer has each place once; the order of questions depends on the seed.
    """
    rows: list[tuple[int, LabelledRow]] = []
    for group in groups:
        shift = rank(seed, "shift", group[0][1]) % len(group)
        order = sorted(answer for _, answer in group)
        order = order[shift:] + order[:shift]
        for number, (context, answer) in enumerate(sorted(group, key=lambda pair: rank(seed, *pair))):
            # The right answer moves to place `number`; the others keep their order.
            others = [other for other in order if other != answer]
            answers = [*others[:number], answer, *others[number:]]
            row = {"context": context, "question": "", "answers": answers, "label": number}
            rows.append((rank(seed, "question", context, answer), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _grouped(grouped: dict[Part, dict[str, list[_Piece]]], seed: int) -> LabelledRows:
    """Return rows with the group's name as label; none if fewer than two groups have enough passages."""
    rows: LabelledRows = {"train": [], "validation": []}
    names = _choose_classes(grouped)
    if len(names) < 2:
        return rows
    seen: set[str] = set()
    for part, groups in grouped.items():
        most = 2 * min(len(groups[name]) for name in names)
        chosen = [(piece, name) for name in names for piece in groups[name][:most]]
        rows[part] = _rows_in_order(chosen, seed, seen)
    return rows


def _choose_classes(groups: Mapping[Part, Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return up to CLASSES names with the most examples, largest first, that have enough in both parts."""
    names = [
        name
        for name in groups["train"]
        if all(len(groups[part].get(name, ())) >= least for part, (least, _) in CLASS_EXAMPLES.items())
    ]
    return sorted(names, key=lambda name: (-len(groups["train"][name]), name))[:CLASSES]


def _shuffled(everything: dict[Part, list[_Piece]], seed: int) -> LabelledRows:
    rows: LabelledRows = {"train": [], "validation": []}
    seen: set[str] = set()
    for part, pieces in everything.items():
        chosen = []
        for number, piece in enumerate(pieces):
            text = " ".join(piece.context.split())
            label = SHUFFLED if number % 2 else AS_WRITTEN
            if label == SHUFFLED:
                text = _shuffle(text, random.Random(rank(seed, "shuffle", text)))
            chosen.append((_Piece(piece.rank, piece.document, text), label))
        chosen = chosen[: len(chosen) // 2 * 2]
        rows[part] = _rows_in_order(chosen, seed, seen)
    return rows


def _shuffle(text: str, generator: random.Random) -> str:
    """Shuffle the words of `text`, or its characters in a script without spaces."""
    words = text.split(" ")
    joint = " "
    if len(words) < len(text) / 25:
        words, joint = list(text), ""
    generator.shuffle(words)
    return joint.join(words)


def _rows_in_order(chosen: list[tuple[_Piece, str]], seed: int, seen: set[str]) -> list[LabelledRow]:
    """Return rows in an order that depends on the seed, without texts in `seen`; add their texts to it."""
    rows: list[LabelledRow] = []
    for piece, label in sorted(chosen, key=lambda pair: rank(seed, "order", str(pair[0].rank))):
        text = piece.context.strip()
        if text and text not in seen:
            seen.add(text)
            rows.append({"text": text, "label": label})
    return rows


def _keep(kept: list[_Piece], piece: _Piece, most: int) -> None:
    """Add a piece to `kept`, the `most` pieces of lowest rank in ascending order, if it is one of them."""
    if len(kept) < most or piece < kept[-1]:
        insort(kept, piece)
        del kept[most:]
