"""GPT-2, section 3.1: why the One Billion Word benchmark is the only set on which GPT-2 is worse than earlier
systems.

The paper's reason is that 1BW's sentences are shuffled, which removes all structure beyond a sentence. Here the
same held-out sentences are scored in order and shuffled, at several context lengths. Every sentence is encoded by
itself, so both texts have the same tokens, and only the context changes the bits per byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.corpus import read_documents
from headwater.errors import DataError
from headwater.inference import LanguageModel, after_start, load, windows
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import bands
from headwater_papers.gpt2_ladder import PREFIX, rungs, text_of
from headwater_papers.items import ItemValues, errors_by_seed, ratio_values
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.paper_tables import SIZES, TABLES
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, differences

ORDERS = ("in order", "shuffled")
_SHORTEST = 16  # tokens of context, then twice as many each time up to the model's

_END = re.compile(r"(?<=[.!?])[\"')]*\s+|\n+")  # of a sentence


class ShuffledSettings(Config):
    """The number of passages of held-out text, and of the sentences in each."""

    passages: int = Field(default=100, ge=2)
    sentences: int = Field(default=32, ge=2)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the largest model once a seed: training, and scores in both orders."""
    names = trainings(scale, rungs(scale)[-1:])
    return {("pre-training", name) for name in names} | {("sentence order", name) for name in names}


def run(laboratory: Laboratory) -> Findings:
    """Score both orders at every context length, once a seed."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_shuffled", ShuffledSettings)
    largest = rungs(scale)[-1]
    bits: dict[str, dict[int, Measured]] = {order: {} for order in ORDERS}
    for seed in scale.seeds:
        scores = _scores(laboratory, largest, seed, settings)
        for order in ORDERS:
            for context, passages in scores["nats"][order].items():
                one = _bits_a_byte(passages, scores["bytes"])
                items = {"passages": one}
                measured = bits[order].setdefault(int(context), Measured())
                measured.add(float(one.values.mean()), errors_by_seed(items)[0], items)
    contexts = list(bits["in order"])
    costs = {context: differences(bits["shuffled"][context], bits["in order"][context]) for context in contexts}
    shortest, longest = contexts[0], contexts[-1]
    rows = [
        Row(f"sentences {order}, context {context}", "bits per byte", values, examples=settings.passages)
        for order, of in bits.items()
        for context, values in of.items()
    ]
    rows += [
        Row(f"context {context}", "cost of shuffling, bits per byte", cost, examples=settings.passages)
        for context, cost in costs.items()
    ]
    table = TABLES["gpt2-table-3"]
    before, after = table.value("state of the art", "1BW"), table.value(SIZES[-1], "1BW")
    return Findings(
        rows=rows,
        findings=[
            judge(CLAIMS["gpt2_shuffled.costs"], costs[longest], longest=longest, before=before, after=after),
            judge(
                CLAIMS["gpt2_shuffled.context"],
                differences(costs[longest], costs[shortest]),
                shortest=shortest,
                longest=longest,
            ),
        ],
        setup=[
            *describe(laboratory, [largest]),
            (
                "sentences",
                f"{settings.passages} passages of {settings.sentences} consecutive sentences, evenly spaced in "
                "the held-out documents; shuffled over all passages, as in 1BW",
            ),
        ],
        notes=[
            "Both orders have the same tokens. A window advances by half its length, so a token sees between half "
            "and all of the named context. The items of the intervals are the passages."
        ],
        figures={
            "context-length": lambda figure: bands(figure, bits, "context, tokens", "bits per byte", log_x=True)
        },
    )


def _scores(laboratory: Laboratory, rung: str, seed: int, settings: ShuffledSettings) -> dict[str, Any]:
    """Return the result of `measure` for one model; JSON makes contexts text."""
    model = laboratory.model(rung, seed)
    _, held_out = laboratory.corpus(text_of(laboratory.scale))

    def scores() -> dict[str, Any]:
        passages = choose_passages([document.text for document in read_documents(held_out)], settings)
        return measure(load(model, precision="fp32", device=laboratory.device), passages)

    return laboratory.measured(
        f"sentence-order-{rung}-{seed}",
        "nats.json",
        scores,
        kind="sentence order",
        name=f"{rung}, seed {seed}",
        config=settings.to_dict() | {"shortest": _SHORTEST},
        inputs={"model": model, "corpus": held_out},
    )


def _sentences(text: str) -> list[str]:
    """Split a text into sentences after . ! ? and at line breaks."""
    return [part.strip() for part in _END.split(text) if part.strip()]


def choose_passages(texts: Sequence[str], settings: ShuffledSettings) -> list[list[str]]:
    """Return evenly spaced runs of consecutive sentences, each within one document."""
    runs = []
    for text in texts:
        sentences = _sentences(text)
        starts = range(0, len(sentences) - settings.sentences + 1, settings.sentences)
        runs += [sentences[start : start + settings.sentences] for start in starts]
    if len(runs) < settings.passages:
        raise DataError(
            f"the held-out text has {len(runs)} passages of {settings.sentences} sentences",
            expected=f"{settings.passages} passages",
            repair="Set experiments.gpt2_shuffled.passages lower, or hold out more of the text",
        )
    return [runs[int(place)] for place in evenly_placed(len(runs), settings.passages)]


def measure(lm: LanguageModel, passages: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Score the sentences of all passages in both orders, at every context length.

    Returns {"bytes": by passage, "nats": order -> context -> by passage}.
    """
    ids = [lm.tokenizer.encode(f" {sentence}") for passage in passages for sentence in passage]
    owners = np.repeat(np.arange(len(passages)), [len(passage) for passage in passages])
    orders = {"in order": np.arange(len(ids)), "shuffled": np.random.default_rng(0).permutation(len(ids))}
    contexts = [lm.config.context >> step for step in range(32) if lm.config.context >> step >= _SHORTEST]
    nats: dict[str, dict[int, list[float]]] = {order: {} for order in orders}
    for order, places in orders.items():
        stream = [token for place in places for token in ids[place]]
        owner = np.repeat(owners[places], [len(ids[place]) for place in places])
        for context in reversed(contexts or [lm.config.context]):
            before, rest = after_start(lm.tokenizer, stream)
            parts = lm.scorer.token_scores(list(windows([*before, *rest], len(before), context)))
            scores = np.concatenate([part.log_probability for part in parts])
            nats[order][context] = np.bincount(owner[-len(rest) :], -scores.astype(np.float64)).tolist()
    sizes = [sum(len(f" {sentence}".encode()) for sentence in passage) for passage in passages]
    return {"bytes": sizes, "nats": nats}


def _bits_a_byte(nats: Sequence[float], sizes: Sequence[int]) -> ItemValues:
    """Return one value a passage; their mean is bits per byte over all passages."""
    values = ratio_values(np.asarray(nats), np.asarray(sizes)) / math.log(2)
    return ItemValues(tuple(map(str, range(len(sizes)))), values[None])


SHUFFLED = Experiment(
    name="gpt2_shuffled",
    title="Text in order and with its sentences shuffled",
    paper="GPT-2",
    section="3.1",
    claim="1BW's sentences are shuffled, which removes all structure beyond a sentence: what a model of long text "
    "has learned does not help there.",
    models=(PREFIX,),
    settings=ShuffledSettings,
    pieces=pieces,
    run=run,
    paper_tables=("gpt2-table-3",),
)
