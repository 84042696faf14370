"""Make labelled data from documents that have a package and a signature, as those of `python-docs` have.

`package`: predict the package from the text below the signature. In the texts of all classes MASK replaces every
word that contains the name of a class, in any case ("numpy", "PyTorch"), and the usual short names (`np`, `nx`),
so that neither a name nor its absence reveals the label. The classes are up to CLASSES packages with the most
documents; no class has more than twice the examples of the smallest.

`signature`: choose, among the beginnings of four docstrings, the one of a signature. Documents whose beginning
contains the object's own name are left out, not masked, so that a language model has seen the texts unchanged.
Documents form groups of four, from one package if it has enough, and of similar length, since likelihood favours
short answers. Each signature of a group is a question with the same four answers, so that nothing in the answers
alone reveals which one is right. `context + answers[label]` is the beginning of a document in the corpus.

The examples of a part, with their wrong answers, come only from that part's documents. A held-out example whose
text also occurs in training is dropped. Order and choices come from hashes of (seed, id).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.corpus import Document, Part, rank

LabelledRow = dict[str, Any]
LabelledRows = dict[Part, list[LabelledRow]]

CLASSES = 8
CHOICES = 4
TEXT_CHARACTERS = 480  # maximum of a text to classify, cut at the end of a line, a sentence or a word
ANSWER_CHARACTERS = 240
MINIMUM_CHARACTERS = 48
# (minimum, maximum) examples of a class; the maximum is enough for a fine-tuning of some minutes.
CLASS_EXAMPLES: dict[Part, tuple[int, int]] = {"train": (60, 400), "validation": (8, 60)}
CHOICE_EXAMPLES: dict[Part, int] = {"train": 4000, "validation": 500}
MASK = "___"
_SHORT_NAMES = {
    "matplotlib": ("plt", "mpl"),
    "networkx": ("nx",),
    "numpy": ("np",),
    "scipy": ("sp",),
    "sklearn": ("scikit-learn", "scikit", "skl"),
}
_LENGTH_STEP = 16  # answers in the same bucket of this many characters count as equally long


def package_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"text", "label"} rows; none if fewer than two packages have enough documents."""
    documents: dict[Part, dict[str, list[Document]]] = {
        "train": defaultdict(list),
        "validation": defaultdict(list),
    }
    for part, document in parts:
        package = document.labels.get("package", "")
        if package and len(_body(document)) >= MINIMUM_CHARACTERS:
            documents[part][package].append(document)
    classes = sorted(choose_classes(documents))
    if len(classes) < 2:
        return {"train": [], "validation": []}
    mask = _mask(classes)
    rows: LabelledRows = {"train": [], "validation": []}
    seen: set[str] = set()
    for part, packages in documents.items():
        most = min(CLASS_EXAMPLES[part][1], 2 * min(len(packages[name]) for name in classes))
        chosen: list[tuple[Document, LabelledRow]] = []
        for package in classes:
            kept = 0
            for document in sorted(packages[package], key=lambda d: rank(seed, d.id)):
                if kept == most:
                    break
                text = shorten(mask.sub(MASK, _body(document)), TEXT_CHARACTERS)
                if text not in seen:
                    seen.add(text)
                    chosen.append((document, {"text": text, "label": package}))
                    kept += 1
        chosen.sort(key=lambda pair: rank(seed, "order", pair[0].id))
        rows[part] = [row for _, row in chosen]
    return rows


def signature_rows(parts: Iterable[tuple[Part, Document]], seed: int) -> LabelledRows:
    """Return {"context", "question", "answers", "label"} rows, CHOICES answers each."""
    answered: dict[Part, list[tuple[Document, str]]] = {"train": [], "validation": []}
    for part, document in parts:
        answer = _answer(document)
        if answer:
            answered[part].append((document, answer))
    rows: LabelledRows = {"train": [], "validation": []}
    seen: set[str] = set()
    for part, pairs in answered.items():
        unique: list[tuple[Document, str]] = []
        for document, answer in pairs:
            if answer not in seen:
                seen.add(answer)
                unique.append((document, answer))
        rows[part] = _choices(unique, seed, CHOICE_EXAMPLES[part])
    return rows


def _choices(pairs: list[tuple[Document, str]], seed: int, most: int) -> list[LabelledRow]:
    packages: dict[str, list[tuple[Document, str]]] = defaultdict(list)
    for document, answer in pairs:
        packages[document.labels.get("package", "")].append((document, answer))
    groups: list[list[tuple[Document, str]]] = []
    rest: list[tuple[Document, str]] = []
    for package in sorted(packages):
        ordered = sorted(packages[package], key=lambda pair: rank(seed, "rest", pair[0].id))
        whole = len(ordered) // CHOICES * CHOICES
        groups += _groups_of_like_length(ordered[:whole], seed)
        rest += ordered[whole:]
    groups += _groups_of_like_length(rest, seed)
    groups.sort(key=lambda group: rank(seed, "group", group[0][0].id))
    questions = [
        [(f"{document.labels['signature']}\n\n", answer) for document, answer in group]
        for group in groups[: most // CHOICES]
    ]
    return choice_rows(questions, seed)


def _groups_of_like_length(pairs: list[tuple[Document, str]], seed: int) -> list[list[tuple[Document, str]]]:
    """Return groups of CHOICES; up to CHOICES - 1 of the longest are left over."""
    ordered = sorted(pairs, key=lambda pair: (len(pair[1]) // _LENGTH_STEP, rank(seed, pair[0].id)))
    return [ordered[i : i + CHOICES] for i in range(0, len(ordered) - CHOICES + 1, CHOICES)]


def choice_rows(groups: list[list[tuple[str, str]]], seed: int) -> list[LabelledRow]:
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


def shorten(text: str, characters: int) -> str:
    """Cut `text` to `characters`, in its second half after a paragraph, line, sentence or word if possible."""
    if len(text) <= characters:
        return text.rstrip()
    beginning = text[: characters + 1]
    for border in ("\n\n", "\n", ". ", "。", " "):
        border_at = beginning.rfind(border, characters // 2)
        if border_at >= 0:
            return beginning[: border_at + len(border.rstrip())].rstrip()
    return text[:characters]


def choose_classes(groups: Mapping[Part, Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return up to CLASSES names with the most examples, largest first, that have enough in both parts."""
    names = [
        name
        for name in groups["train"]
        if all(len(groups[part].get(name, ())) >= least for part, (least, _) in CLASS_EXAMPLES.items())
    ]
    return sorted(names, key=lambda name: (-len(groups["train"][name]), name))[:CLASSES]


def _mask(classes: list[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True))
    short = [short for name in classes for short in _SHORT_NAMES.get(name, ())]
    whole = "".join(rf"|\b{re.escape(name)}\b" for name in sorted(short, key=len, reverse=True))
    return re.compile(rf"\w*(?:{names})\w*{whole}", re.IGNORECASE)


def _body(document: Document) -> str:
    """Return the text below the signature, which is the first line of a document that has one."""
    signature = document.labels.get("signature", "")
    if not signature:
        return document.text
    heading = f"{signature}\n\n"
    return document.text[len(heading) :] if document.text.startswith(heading) else ""


def _answer(document: Document) -> str:
    """Return the beginning of the docstring; empty if it cannot be an answer."""
    if not document.labels.get("signature"):
        return ""
    answer = shorten(_body(document), ANSWER_CHARACTERS)
    own_names = {name.lower() for name in document.labels.get("object", "").split(".")}
    words = {word.lower() for word in re.findall(r"\w+", answer)}
    return "" if len(answer) < MINIMUM_CHARACTERS or own_names & words else answer
