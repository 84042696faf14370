"""GPT-1, figure 2 on the left: how much each transferred layer adds.

Embeddings and the first n blocks come from pre-training and the rest is initialised at random, as with
`n_transfer` in the authors' code. The paper draws the accuracy on MultiNLI and RACE over n, for the development
part and, dashed, the training part. Here it is the test part of each set, and rows that the model learned from.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from headwater.config import Config
from headwater.display import counted
from headwater_papers.claims import CLAIMS, judge, judge_steps
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import COLOURS, bands
from headwater_papers.labelled import (
    FULL,
    fine_tune,
    left_out_note,
    over_parts,
    piece_names,
    sets_missing,
    sets_there,
    training_score,
)
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, shape_of, trainings
from headwater_papers.setup import describe, training_notes
from headwater_papers.statistics import Measured, differences, mean_of_sets
from headwater_papers.tuned_tables import PERCENT, mean_row


class LayerTransferSettings(Config):
    """The sets, and the numbers of transferred layers in addition to none and all of them.

    training: the most rows that the training curve is measured on.
    """

    sets: tuple[str, ...] = ("mnli", "race")
    layers: tuple[int, ...] = ()
    training: int = Field(default=500, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: each number of layers on each set, once a seed."""
    settings = _settings(scale)
    depth = shape_of(scale, "gpt1").layers
    work = piece_names(scale, settings.sets, [FULL])
    for layers in _layers(settings, depth):
        if layers < depth:
            names = trainings(scale, [f"{layers} layers"])
            work |= {(f"fine-tuning on {one}", name) for one in settings.sets for name in names}
    return work


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune with each number of transferred layers."""
    settings = _settings(laboratory.scale)
    sets, left_out = sets_there(laboratory.scale, settings.sets, laboratory.data)
    seeds = laboratory.scale.seeds
    depth = shape_of(laboratory.scale, "gpt1").layers
    layers = _layers(settings, depth)
    scores: dict[str, dict[int, Measured]] = {name: {} for name in sets}
    learned: dict[str, dict[int, Measured]] = {name: {} for name in sets}
    rows = []
    for name in sets:
        for count in layers:
            given = None if count == depth else count
            tuned = [fine_tune(laboratory, name, FULL, seed, layers=given) for seed in seeds]
            scores[name][count] = over_parts(tuned)
            setting = f"{name}, {counted(count, 'layer')}"
            rows.append(mean_row(setting, tuned))
            seen = [training_score(laboratory, name, seed, given, settings.training) for seed in seeds]
            learned[name][count] = Measured((one["value"] for one in seen), (one["error"] for one in seen))
            measure = f"{rows[-1].measure}, training rows"
            rows.append(Row(setting, measure, learned[name][count], examples=int(seen[0]["examples"])))

    def mean(count: int) -> Measured:
        return mean_of_sets([scores[name][count] for name in sets])

    findings = [
        judge(CLAIMS["gpt1_layers.all"], differences(mean(depth), mean(layers[0]))),
        judge_steps(CLAIMS["gpt1_layers.each"], [mean(count) for count in layers]),
    ]
    curves, colours = {}, {}
    for number, name in enumerate(sets):
        for title, measured in ((name, scores[name]), (f"{name}, training", learned[name])):
            curves[title] = {count: values.linear(PERCENT) for count, values in measured.items()}
            colours[title] = COLOURS[number % len(COLOURS)]
    notes = [
        "As in the paper, the dashed curves are for training rows.",
        "The paper prints no values; those read off its figure are below.",
        *training_notes(laboratory.scale, ["gpt1"]),
    ]
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, ["gpt1"], fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={
            "figure-2-left": lambda figure: bands(
                figure,
                curves,
                "# of layers transferred",
                "score, per cent",
                dashed=[name for name in curves if name.endswith(", training")],
                colours=colours,
            )
        },
    )


def _settings(scale: Scale) -> LayerTransferSettings:
    return scale.settings("gpt1_layers", LayerTransferSettings)


def _layers(settings: LayerTransferSettings, depth: int) -> Sequence[int]:
    return sorted({0, *(settings.layers or range(depth)), depth})


LAYERS = Experiment(
    name="gpt1_layers",
    title="Layers transferred (figure 2, left)",
    paper="GPT-1",
    section="5",
    claim="Transferring embeddings helps, and each Transformer layer adds more, up to 9 points for all of them.",
    models=("gpt1",),
    any_base=True,
    settings=LayerTransferSettings,
    pieces=pieces,
    run=run,
    paper_tables=("gpt1-figure-2-left",),
    lacks=lambda scale, data: sets_missing(scale, _settings(scale).sets, data),
)
