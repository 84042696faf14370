"""GPT-1, figure 2 on the left: how much each transferred layer adds.

Embeddings and the first n blocks come from pre-training, the rest is drawn anew, as `n_transfer` in the
authors' code. The paper draws the development accuracy of MultiNLI and RACE over n; here it is the test part of
each set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from headwater.config import Config
from headwater.model.folder import load_config
from headwater.pretrain import PretrainConfig
from headwater.reproduce.experiment import Experiment, Findings, Row, judge
from headwater.reproduce.figures import bands
from headwater.reproduce.gpt1_tables import PERCENT, mean_of
from headwater.reproduce.labelled import ANY_SET, FULL, fine_tune, piece_names, sets_there
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe_fine_tuning, describe_model, describe_text
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN


class Settings(Config):
    """On which sets, and with how many transferred layers; the whole model is always among them."""

    sets: tuple[str, ...] = ("mnli", "race")
    layers: tuple[int, ...] = ()


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Each number of layers on each set, once a seed."""
    settings = Settings.build(scale.experiments.get("gpt1_layers", {}))
    depth = PretrainConfig.build(scale.models["gpt1"].recipe).architecture.layers
    found = piece_names(settings.sets, [FULL], scale.seeds)
    for layers in _layers(settings, depth):
        if layers < depth:
            names = {f"{layers} layers, seed {seed}" for seed in scale.seeds}
            found |= {(f"fine-tuning on {one}", name) for one in settings.sets for name in names}
    return found


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune with each number of transferred layers."""
    settings = laboratory.settings("gpt1_layers", Settings)
    there, missing = sets_there(laboratory)
    seeds = laboratory.scale.seeds
    depth = load_config(laboratory.model("gpt1", seeds[0])).layers
    layers = _layers(settings, depth)
    sets = [name for name in settings.sets if name in there]
    scores: dict[str, dict[int, list[float]]] = {name: {} for name in sets}
    rows = []
    for name in sets:
        for count in layers:
            given = None if count == depth else count
            measured = [fine_tune(laboratory, name, FULL, seed, layers=given) for seed in seeds]
            scores[name][count] = [mean_of(one) for one in measured]
            one = measured[0][0]
            remarks = "; ".join(one.remarks)
            rows.append(
                Row(f"{name}, {count} layers", one.metric, scores[name][count], None, one.examples, remarks)
            )

    def mean(count: int) -> list[float]:
        return [math.fsum(scores[name][count][seed] for name in sets) / len(sets) for seed in range(len(seeds))]

    gain = [a - b for a, b in zip(mean(depth), mean(layers[0]), strict=True)]
    steps = [[b - a for a, b in zip(mean(x), mean(y), strict=True)] for x, y in itertools.pairwise(layers)]
    smallest = [min(step[seed] for step in steps) for seed in range(len(seeds))]
    findings = [
        judge(
            "Transferring all layers beats transferring the embeddings alone.",
            "up to 9 points on MultiNLI",
            gain,
            unit=" points",
            scale=PERCENT,
            digits=1,
            sentences={
                HOLDS: "The whole pre-trained model is worth {here} points over its embeddings.",
                FAILS: "Here the embeddings alone do better: {here} points.",
                OPEN: "What the layers add to the embeddings ({here} points) does not stand clear of the spread.",
            },
        ),
        judge(
            "Every transferred layer adds something.",
            "rising over 0 to 12 layers",
            smallest,
            here="smallest step " + Row("", "", smallest).estimate.text(1, PERCENT) + " points",
            scale=PERCENT,
            digits=1,
            sentences={
                HOLDS: "Each layer adds, the least one {here} points.",
                FAILS: "Not every layer adds: the least step is {here} points.",
                OPEN: "Single layers add too little here to be told from the spread over seeds ({here} points).",
            },
        ),
    ]
    curves = {
        name: [[(count, PERCENT * scores[name][count][seed]) for count in layers] for seed in range(len(seeds))]
        for name in sets
    }
    notes = [
        "The paper also draws training accuracy, dashed; here only rows that were not trained on are scored.",
        "The paper's figure is read off, not printed: MultiNLI about 72 to 82, RACE about 40 to 60.",
    ]
    notes += [f"Not at hand, so left out: {', '.join(n for n in settings.sets if n in missing)}."] * any(
        name in missing for name in settings.sets
    )
    return Findings(
        rows=rows,
        findings=findings,
        setup=[
            *describe_text(laboratory, laboratory.scale.models["gpt1"].text),
            describe_model(laboratory, "gpt1"),
            *describe_fine_tuning(laboratory),
        ],
        notes=notes,
        figures={
            "figure-2-left": lambda figure: bands(figure, curves, "# of layers transferred", "score, per cent")
        },
    )


def _layers(settings: Settings, depth: int) -> Sequence[int]:
    """The numbers of layers, from none to all."""
    return sorted({*(settings.layers or range(depth)), depth})


LAYERS = Experiment(
    name="gpt1_layers",
    title="Layers transferred (figure 2, left)",
    paper="GPT-1",
    section="5",
    claim="Transferring embeddings helps, and each Transformer layer adds more, up to 9 points for all of them.",
    needs={"a labelled set of GPT-1": ANY_SET},
    settings=Settings,
    pieces=pieces,
    run=run,
    texts=("books",),
)
