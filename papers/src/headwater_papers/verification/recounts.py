"""Compute each zero-shot protocol again on transformers' GPT-2, for `verify`.

This code does not use Headwater's to read the official files. It tokenises with transformers' tokenizer and runs
its GPT-2 on one text at a time. From Headwater it takes only the de-tokenizers, whose inverses have a test of
their own, and the list of function words. `RECOUNTS` has a function for each protocol.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from headwater_papers.verification.peer import Drawn, Files, Peer, PeerAnswer, Written

# For each protocol: (files, peer, count) -> the answers to each of the first `count` examples.
Recount = Callable[[Files, Peer, int], "list[list[PeerAnswer]]"]
RECOUNTS: dict[str, Recount] = {}


def recounts(*protocols: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for protocols. It gets the name of the protocol."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def first(protocol: str, files: Files, peer: Peer, count: int) -> list[list[PeerAnswer]]:
            return list(islice(function(protocol, files, peer, count), count))

        RECOUNTS.update({protocol: partial(first, protocol) for protocol in protocols})
        return function

    return register


_TEXTS, _READINGS = (
    ("openai", "original", "original.detokenized"),
    ("last-token", "whole-word"),
)
_STOP_WORDS = "whole-word.stop-words"


@recounts(*(f"lambada.{text}.{reading}" for text in _TEXTS for reading in (*_READINGS, _STOP_WORDS)))
def lambada(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score the last word or its last token; with the filter, also the words that are generated."""
    from headwater.evaluation import DETOKENIZERS

    if ".openai." in protocol:
        texts = [json.loads(line)["text"] for line in files.lines("lambada_test_openai.jsonl")]
    else:
        texts = [line.strip() for line in files.lines("lambada_test_plain_text.txt")]
    for text in texts[:count]:
        context, word = text[: text.rindex(" ")], text[text.rindex(" ") :]
        context = DETOKENIZERS["lambada"].detokenize(context) if ".detokenized." in protocol else context
        scores = peer.score(context, word)
        if protocol.endswith("last-token"):
            scores = scores[-1:]
        yield [scores, *(_filtered(peer.ids(context), peer) if protocol.endswith(_STOP_WORDS) else [])]


def _filtered(prompt: Sequence[int], peer: Peer) -> Iterator[PeerAnswer]:
    """Yield first tokens by falling probability, with the rest of each word, until one is not a function word."""
    from headwater.evaluation import FUNCTION_WORDS

    likely = next(peer.likely(prompt[-peer.context :]))
    for token in likely.argsort(descending=True).tolist():
        first = peer.text([token])
        yield Written(first, [float(likely[token])])
        if not FUNCTION_WORDS.may_begin(first):
            return
        rest = peer.write([*prompt, token][-(peer.context + 1 - 8) :], 8, (" ", "\n"))
        yield rest
        # A generated word ends at white space.
        letters = re.match(r"[^\W_]*(?:['’][^\W_]+)*", (first + rest.text).strip())
        if (letters[0] if letters else "") not in FUNCTION_WORDS:
            return


def stream(name: str, detokenizer: Any, most: int = 400_000) -> Callable[..., Iterator[list[PeerAnswer]]]:
    """Return a recount of the windows of a text."""

    def windows(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
        from headwater.evaluation import DETOKENIZERS

        text = files(name).read_bytes()[:most].decode("utf-8", errors="ignore")
        if detokenizer is not None:
            text = "\n".join(map(DETOKENIZERS[detokenizer].detokenize, text.split("\n")))
        yield from peer.windows(peer.ids(text), count)

    return windows


for _name, _file, _detokenizer in (
    ("wikitext-2", "wikitext2/wiki.test.tokens", "wikitext"),
    ("wikitext-raw", "wikitext2/wiki.test.raw", "wikitext"),
    ("wikitext-103", "wikitext-103/wiki.test.tokens", "wikitext"),
    ("ptb", "ptb.test.txt", "ptb"),
    ("1bw", "news.en.heldout-00000-of-00050", "1bw"),
):
    recounts(f"{_name}.tokens")(stream(_file, None))
    recounts(f"{_name}.detokenized")(stream(_file, _detokenizer))
recounts("enwik8.bytes")(stream("enwik8.test.5mb", None))
recounts("text8.characters")(stream("text8.test.5mb", None))


@recounts(
    *(
        f"cbt.{kind}.{text}"
        for kind in ("common-nouns", "named-entities")
        for text in ("tokens", "detokenized", "detokenized.spaces")
    )
)
def cbt(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score each candidate with the rest of its sentence."""
    from headwater.evaluation import DETOKENIZERS

    written: Callable[[str], str] = DETOKENIZERS["cbt"].detokenize if ".detokenized" in protocol else str
    joined = " " if protocol.endswith("spaces") else "\n"
    lines = files.lines(f"cbtest_{'CN' if '.common' in protocol else 'NE'}_valid_2000ex.txt")
    for start in range(0, len(lines), 22):
        *story, asked = (line.split(" ", 1)[1] for line in lines[start : start + 21])
        query, _, _, candidates = asked.split("\t")
        texts = [joined.join(map(written, [*story, query.replace("XXXXX", c)])) for c in candidates.split("|")]
        alike = next(i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
        border = texts[0].rindex(" ", 0, alike)
        yield [peer.score(text[:border], text[border:]) for text in texts]


# What follows "his", "her", "its" or "their" in the files, which write all pronouns as [MASK].
_OWNED = """(education|place) had|empty glass|bathroom key|"Dibs!"|bishop|turn was|shoulders?\\b|bunk bed|back,|toy
silence|concentration|legs|arms|bassinet|chest|will\\.|boyfriend|boss at|everlasting|feet|wing|approval|innate
financial|hair|favorite|work was|crew had|berth|Sunday|tail|music"""


def _follows_possessive(after: str) -> bool:
    return re.match(_OWNED.replace("\n", "|"), after) is not None


@recounts("wsc273.full", "wsc273.partial", "pdp.full", "pdp.partial", "dprd.substitution")
def pronouns(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score each candidate in the pronoun's place."""
    name = {"wsc": "wsc273.txt", "pdp": "PDP.txt", "dpr": "dprd/test.c.txt"}[protocol[:3]]
    blocks = "\n".join(files.lines(name)).split("\n\n")
    for block in blocks[:count]:
        sentence, pronoun, candidates, _ = (line.strip() for line in block.strip().split("\n"))
        joint = re.search(
            r"\b(because|since|so|but|and|although|though|as|when|while|after|before|until|if)\b", sentence
        )
        places = [m.span() for m in re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", sentence)]
        first, last = next((span for span in places if joint and span[0] >= joint.end()), places[0])
        before, after = sentence[:first].rstrip(), sentence[last:].lstrip()
        answers: list[PeerAnswer] = []
        for candidate in candidates.split(","):
            who = " ".join(candidate.split())
            if (
                before and before[-1] not in ".!?:"
            ):  # only the capital at a beginning is changed, not that of a name
                who = re.sub(r"^(The|A|An|His|Her|My|Their)\b", lambda article: article[0].lower(), who)
            else:
                who = who[0].upper() + who[1:]
            if pronoun == "his" or (pronoun in {"[MASK]", "her"} and _follows_possessive(after)):
                who += "'" if who.endswith("s") else "'s"
            start = f"{before} {who}".strip()
            end = after if after[:1] in {"'", ",", ".", ";"} else f" {after}"
            answers.append(peer.alone(start + end) if protocol.endswith("full") else peer.score(start, end))
        yield answers


@recounts("sst-2.very", "sst-2.whole-word")
def sst2(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score two words after *very*."""
    for line in files.lines("sst2/glue/dev.tsv")[1:]:
        text = line.split("\t")[1].strip()
        yield [peer.score(f"{text} very", f" {word}") for word in ("negative", "positive")]


@recounts("cola.mean-log-probability")
def cola(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score whole sentences."""
    for line in files.lines("cola/in_domain_dev.tsv"):
        yield [peer.alone(line.split("\t")[3])]


def options_of(row: dict[str, Any]) -> list[str]:
    """Return the answers of a RACE question; in the sample they are a Python list."""
    options = row["options"]
    return list(ast.literal_eval(options) if isinstance(options, str) else options)


@recounts("race-middle.mean", "race-sample.mean")
def race(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score each answer after text and question."""
    if protocol == "race-sample.mean":
        rows = map(json.loads, files.lines("race_1000_m500_h500.jsonl"))
        questions = [(row["article"], row["question"], options_of(row)) for row in islice(rows, count)]
    else:
        questions = []
        for line in files.lines("race_middle_test.jsonl")[:count]:
            prompt = json.loads(line)["conversation"][0]["human"]
            passage, rest = prompt.split("<passage>:\n")[1].split("<question>:\n")
            question, rest = rest.split("<options>:\n")
            options = [option[2:] for option in rest.split("<answer>")[0].strip().split("\n")]
            questions.append((passage.rstrip("\n"), question.rstrip("\n"), options))
    for article, question, options in questions:
        yield [peer.score(f"{article}\n{question}\n", option, own=True) for option in options]


@recounts("race-high.mean")
def race_high(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Do the same for an article of the official distribution."""
    article = json.loads(files("RACE/test/high/1.txt").read_text(encoding="utf-8"))
    for question, options in zip(article["questions"], article["options"], strict=True):
        yield [peer.score(f"{article['article']}\n{question}\n", option, own=True) for option in options]


@recounts("story-cloze.mean")
def story_cloze(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score each ending."""
    rows = [r for r in csv.reader(files.lines("cloze_test_test__spring2016.csv")) if r[0] != "InputStoryid"]
    for row in rows:
        yield [peer.score(" ".join(row[1:5]), f" {ending}") for ending in row[5:7]]


@recounts(*(f"hellaswag.{how}" for how in ("lm-eval.total", "lm-eval.per-character")))
def hellaswag(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score each ending after the context: as one text."""
    for line in files.lines("hellaswag_val.jsonl"):
        row = json.loads(line)
        ctx_b = row["ctx_b"][:1].upper() + row["ctx_b"][1:].lower()
        context, *endings = (
            re.sub(r"\[[^]]*\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")
            for text in (f"{row['activity_label']}: {row['ctx_a']} {ctx_b}", *row["endings"])
        )
        yield [peer.score(context, f" {ending}") for ending in endings]


@recounts("coqa.greedy")
def coqa(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Generate answers after the conversation so far."""
    for story in json.loads(files("coqa-dev-v1.0.json").read_text(encoding="utf-8"))["data"]:
        text = ""
        for question, answer in zip(story["questions"], story["answers"], strict=True):
            text += f"\nQ: {question['input_text']}\nA:"
            asked = peer.ids(text)
            before = peer.ids(story["story"].strip() + "\n")
            yield [peer.write([*before[: peer.context + 1 - 32 - len(asked)], *asked], 32)]
            text += f" {answer['input_text']}"


@recounts("natural-questions.exact-match")
def natural_questions(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Generate answers after the last five pairs."""
    rows = [json.loads(line) for line in files.lines("NQ-open.dev.jsonl")]
    shown = "".join(f"Q: {row['question']}?\nA: {row['answer'][0]}\n\n" for row in rows[-5:])
    for row in rows[:-5]:
        yield [peer.write(peer.ids(f"{shown}Q: {row['question']}?\nA:")[-(peer.context + 1 - 32) :], 32)]


@recounts("wmt14.en-fr", "wmt14.fr-en")
def translation(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Generate translations after the last five pairs."""
    pairs = list(zip(*(files.lines(f"newstest2014.en-fr.{s}") for s in protocol[6:].split("-")), strict=True))
    shown = "".join(f"{source} = {target}\n" for source, target in pairs[-5:])
    for source, _ in pairs[:-5]:
        yield [peer.write(peer.ids(f"{shown}{source} =")[-(peer.context + 1 - 96) :], 96)]


@recounts("cnndm.tldr", "cnndm.no-hint", "cnndm.lead-3", "cnndm.random-3")
def summaries(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Return the draw after the article, or nothing."""
    for line in files.lines("summeval_cnndm_test_100.jsonl"):
        article, hint = peer.ids(json.loads(line)["article"].strip()), "TL;DR:" if "tldr" in protocol else ""
        end = peer.ids(f"\n{hint}")
        prompt = [*article[: peer.context + 1 - 100 - len(end)], *end]
        yield [Drawn(prompt)] if protocol in {"cnndm.tldr", "cnndm.no-hint"} else []


@recounts("heldout.bits-per-byte")
def held_out(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Score the windows of `count` evenly spaced documents."""
    ids = np.load(files("validation-00000.npy"))
    starts = np.load(files("documents-validation-00000.npy"))
    documents = np.split(ids, starts[1:])
    chosen = min(count, len(documents))
    for document in (documents[number * len(documents) // chosen] for number in range(chosen)):
        scored = peer.windows(document.tolist(), len(document))
        yield [window[0] for window in scored]


@recounts("natural-questions.question-type")
def question_types(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Return no answers: the baseline uses no model."""
    yield from ([] for _ in range(count))


@recounts("race.mean")
def race_all(protocol: str, files: Files, peer: Peer, count: int) -> Iterator[list[PeerAnswer]]:
    """Do `race_high` for the articles of both parts."""
    yield from race_high(protocol, files, peer, count)
