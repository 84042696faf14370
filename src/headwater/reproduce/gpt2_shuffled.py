"""GPT-2, section 3.1: why the One Billion Word benchmark is the one set on which GPT-2 is behind.

The paper's reason is that 1BW's sentences are shuffled, which removes all structure beyond a sentence. Here the
same held-out sentences are scored in their order and shuffled, at several context lengths. Every sentence is
encoded by itself, so both texts have the same tokens, and the bits a byte differ by context alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headwater.config import Config
from headwater.corpus.folder import read_documents
from headwater.datasets.paper_tables import SIZES, TABLES
from headwater.errors import DataError
from headwater.evaluate.tasks.summaries import sentences
from headwater.language_model import LanguageModel
from headwater.reproduce.experiment import Experiment, Findings, Row, judge
from headwater.reproduce.figures import Curve, bands
from headwater.reproduce.gpt2_ladder import PREFIX, rungs, text_of, trainings
from headwater.reproduce.items import ItemValues, errors_by_seed
from headwater.reproduce.laboratory import Laboratory, evenly_placed
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Measured, differences
from headwater.storage.files import read_json, write_json
from headwater.storage.stage import Stage

Order = Literal["in order", "shuffled"]
ORDERS: tuple[Order, ...] = ("in order", "shuffled")
_SHORTEST = 16  # tokens of context, then twice as many each time up to the model's


class ShuffledSettings(Config):
    """How many passages of held-out text are scored, and how many sentences each has."""

    passages: int = Field(default=100, ge=2)
    sentences: int = Field(default=32, ge=2)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The largest model once a seed: trained, and its scores in both orders."""
    names = trainings(scale, rungs(scale)[-1:])
    return {("pre-training", name) for name in names} | {("sentence order", name) for name in names}


def run(laboratory: Laboratory) -> Findings:
    """Score both orders at every context length, once a seed."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_shuffled", ShuffledSettings)
    largest = rungs(scale)[-1]
    bits: dict[Order, dict[int, Measured]] = {order: {} for order in ORDERS}
    for seed in scale.seeds:
        found = _scores(laboratory, largest, seed, settings)
        for order in ORDERS:
            for context, passages in found["nats"][order].items():
                one = _bits_a_byte(passages, found["bytes"])
                items = {"passages": one}
                measured = bits[order].setdefault(int(context), Measured())
                measured.add(float(one.values.mean()), errors_by_seed(items)[0], items)
    contexts = list(bits["in order"])
    costs = {context: differences(bits["shuffled"][context], bits["in order"][context]) for context in contexts}
    shortest, longest = contexts[0], contexts[-1]
    curves: dict[str, list[Curve]] = {
        order: [[(context, values[seed]) for context, values in of.items()] for seed in range(len(scale.seeds))]
        for order, of in bits.items()
    }
    errors: dict[str, list[float]] = {
        order: [values.item_error for values in of.values()] for order, of in bits.items()
    }
    rows = [
        Row(f"sentences {order}, context {context}", "bits a byte", values, examples=settings.passages)
        for order, of in bits.items()
        for context, values in of.items()
    ]
    rows += [
        Row(f"context {context}", "bits a byte that shuffling costs", cost, examples=settings.passages)
        for context, cost in costs.items()
    ]
    table = TABLES["gpt2-table-3"]
    before, after = table.value("state of the art", "1BW"), table.value(SIZES[-1], "1BW")
    return Findings(
        rows=rows,
        findings=[
            judge(
                "Shuffled sentences cost more bits a byte than the same sentences in order.",
                f"not measured; the reason given for 1BW's perplexity of {after:g}, against {before:g} before",
                costs[longest],
                unit=" bits a byte",
                sentences={
                    HOLDS: f"With {longest} tokens of context, shuffling costs {{here}}.",
                    FAILS: f"With {longest} tokens of context, shuffled sentences cost less ({{here}}).",
                    OPEN: f"With {longest} tokens of context, the two orders are not told apart ({{here}}).",
                },
            ),
            judge(
                "The longer the context, the more shuffling costs.",
                "not measured; follows from the reason given",
                differences(costs[longest], costs[shortest]),
                unit=" bits a byte",
                sentences={
                    HOLDS: f"From {shortest} to {longest} tokens of context, the cost grows by {{here}}: the "
                    "model uses what earlier sentences say.",
                    FAILS: f"From {shortest} to {longest} tokens of context, the cost falls ({{here}}).",
                    OPEN: f"From {shortest} to {longest} tokens of context, the cost does not change clearly "
                    "({here}).",
                },
            ),
        ],
        setup=[
            *describe(laboratory, [largest]),
            (
                "sentences",
                f"{settings.passages} passages of {settings.sentences} consecutive sentences, spread evenly over "
                "the held-out documents; shuffled over all passages, as in 1BW",
            ),
        ],
        notes=[
            "Both orders have the same tokens. A window advances by half its length, so a token sees between a "
            "half and all of the context that is named. The items of the intervals are the passages."
        ],
        figures={
            "context-length": lambda figure: bands(
                figure, curves, "context, tokens", "bits a byte", log_x=True, item_errors=errors
            )
        },
    )


def _scores(laboratory: Laboratory, rung: str, seed: int, settings: ShuffledSettings) -> dict[str, Any]:
    """Return what `measure` found of one model; contexts are text."""
    model = laboratory.model(rung, seed)
    _, held_out = laboratory.corpus(text_of(laboratory.scale))
    config = settings.to_dict() | {"shortest": _SHORTEST}
    inputs = {"model": model, "corpus": held_out}
    out = laboratory.place(f"sentence-order-{rung}-{seed}", config, inputs)
    stage = Stage(out, kind="sentence order", config=config, inputs=inputs)
    with laboratory.piece("sentence order", f"{rung}, seed {seed}", out):
        if not stage.is_complete():
            passages = choose_passages([document.text for document in read_documents(held_out)], settings)
            lm = LanguageModel.open(model, precision="fp32", device=laboratory.device)
            with stage.write() as work:
                write_json(work / "nats.json", measure(lm, passages))
    found: dict[str, Any] = read_json(out / "nats.json")
    return found


def choose_passages(texts: Sequence[str], settings: ShuffledSettings) -> list[list[str]]:
    """Return runs of consecutive sentences, spread evenly; none crosses the end of a document."""
    runs = []
    for text in texts:
        found = sentences(text)
        starts = range(0, len(found) - settings.sentences + 1, settings.sentences)
        runs += [found[start : start + settings.sentences] for start in starts]
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
            scores = lm.scorer.rolling(stream, context, max(1, context // 2))
            nats[order][context] = np.bincount(owner, -scores.astype(np.float64)).tolist()
    sizes = [sum(len(f" {sentence}".encode()) for sentence in passage) for passage in passages]
    return {"bytes": sizes, "nats": nats}


def _bits_a_byte(nats: Sequence[float], sizes: Sequence[int]) -> ItemValues:
    """Return one value a passage, of which bits a byte over all passages is the mean."""
    values: NDArray[np.float64] = np.asarray(nats) / math.log(2) / np.mean(sizes)
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
    beside=("gpt2-table-3",),
)
