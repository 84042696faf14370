"""GPT-2, sections 3.1 to 3.3 and 4: zero-shot scores over four sizes (table 3), and train against test (figure 4).

The paper trains four sizes on one text and scores them on sets that none was trained on. All scores improve with
size, as does perplexity on training and test text, from which the paper concludes that all of them underfit. Here
figure 4 has three texts: windows that the run read, windows of the same books that it did not read, and whole
held-out books. The first two differ only by memorisation. A run of one epoch or more leaves no window unread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.evaluation import Results, all_tasks
from headwater.pretraining import PretrainConfig, TokenStream
from headwater_papers.claims import CLAIMS, Finding, PaperClaim, judge, judge_steps
from headwater_papers.experiment import Experiment, Findings, Row, files_missing
from headwater_papers.figures import bands
from headwater_papers.gpt2_ladder import (
    PREFIX,
    counterpart,
    label,
    panels_over_sizes,
    reference_lines,
    rungs,
    windows_read,
    windows_unread,
)
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.paper_tables import TABLES
from headwater_papers.scale import Scale, trainings
from headwater_papers.scores import Column, ScoreTable, left_out_notes
from headwater_papers.setup import describe, parameters
from headwater_papers.statistics import Measured, differences, mean_of_sets, over_seeds

# Table 3's columns: protocol, metric, short name.
COLUMNS: Mapping[Column, str] = {
    ("lambada.openai.whole-word", "perplexity"): "LAMBADA perplexity",
    ("lambada.openai.whole-word.stop-words", "accuracy"): "LAMBADA accuracy",
    ("cbt.common-nouns.detokenized", "accuracy"): "CBT common nouns",
    ("cbt.named-entities.detokenized", "accuracy"): "CBT named entities",
    ("wikitext-2.detokenized", "perplexity"): "WikiText-2 perplexity",
    ("ptb.detokenized", "perplexity"): "PTB perplexity",
    ("enwik8.bytes", "bits per byte"): "enwik8 bits per byte",
    ("text8.characters", "bits per character"): "text8 bits per character",
    ("wikitext-103.detokenized", "perplexity"): "WikiText-103 perplexity",
    ("1bw.detokenized", "perplexity"): "1BW perplexity",
}
# The same sets as they are distributed, without a de-tokenizer (section 3.1). No claim uses them.
AS_DISTRIBUTED: Mapping[Column, str] = {
    (protocol.replace("detokenized", "tokens"), metric): f"{name}, not de-tokenized"
    for (protocol, metric), name in COLUMNS.items()
    if protocol.endswith(".detokenized")
}
NEEDED = {
    "LAMBADA": "eval-zeroshot/lambada/lambada_test_openai.jsonl",
    "WikiText-2": "eval-zeroshot/wikitext2/wiki.test.tokens",
}
PARTS = ("read", "unread", "held-out")
_TITLES = {"read": "training text", "unread": "unread text of the same books", "held-out": "held-out books"}
_TIGHT = 0.05  # nats per token
_CBT = {"CBT common nouns": "CBT-CN", "CBT named entities": "CBT-NE"}
GAIN = TABLES["gpt2-further-text"].rows["perplexity that the de-tokenizers gain"][0]


class ZeroShotSettings(Config):
    """limit: the number of examples of each set. windows: of each part of the text for figure 4."""

    limit: int | None = Field(default=None, ge=1)
    windows: int = Field(default=200, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: every rung once a seed: training, scores, and the loss on the three parts."""
    names = trainings(scale, rungs(scale))
    work = {("pre-training", name) for name in names}
    work |= {("scores", f"{what}, {name}") for what in ("table 3", "not de-tokenized") for name in names}
    return work | {("perplexity", f"{name}, {part}") for name in names for part in PARTS}


def run(laboratory: Laboratory) -> Findings:
    """Train the ladder, score every rung, measure its loss on the three parts."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_zero_shot", ZeroShotSettings)
    ladder = rungs(scale)
    scores, plain = ScoreTable(COLUMNS), ScoreTable(AS_DISTRIBUTED)
    losses: dict[str, dict[str, Measured]] = {part: {} for part in PARTS}
    bits: dict[str, Measured] = {}
    for rung in ladder:
        for seed in scale.seeds:
            scores.add(laboratory, rung, *table_3(laboratory, rung, seed))
            plain.add(laboratory, rung, *_scores(laboratory, "not de-tokenized", AS_DISTRIBUTED, rung, seed))
            for part, figures in _losses(laboratory, rung, seed, settings.windows).items():
                losses[part].setdefault(rung, Measured()).add(figures["loss"], figures["loss error"])
                if part == "held-out":
                    rate = figures["bits per byte"] / figures["loss"]
                    bits.setdefault(rung, Measured()).add(figures["bits per byte"], figures["loss error"] * rate)
    labels = {rung: label(laboratory, rung) for rung in ladder}
    rows = scores.rows(
        labels,
        COLUMNS,
        lambda column, rung: _published(column).get(counterpart(scale, rung)),
        lambda rung: f"paper: {counterpart(scale, rung)}",
    )
    rows += plain.rows(labels, AS_DISTRIBUTED)
    rows += [Row(labels[rung], "bits per byte, held-out books", values) for rung, values in bits.items()]
    rows += [
        Row(labels[rung], f"perplexity per token, {_TITLES[part]}", values.map(math.exp))
        for part in PARTS
        for rung, values in losses[part].items()
    ]
    sizes = {rung: parameters(laboratory, rung) for rung in ladder}
    return Findings(
        rows=rows,
        findings=[
            bits_fall(CLAIMS["gpt2_zero_shot.bits"], bits),
            *_columns(scores),
            *_underfitting(losses, ladder),
        ],
        setup=[
            *describe(laboratory, ladder),
            (
                "scores",
                f"the first {settings.limit or 'all'} examples of each set; running text in windows of the "
                "model's context, which advance by half of it",
            ),
        ],
        notes=[
            "Each model is shown with the paper's model at the same position, for orientation only: the paper's "
            "smallest has 124 million parameters, and its text 40 GB.",
            "Perplexity of WikiText-2 and PTB is per word, whatever the model's tokens, as in the paper.",
            f"The paper's models gain {GAIN} perplexity by the de-tokenizers (section 3.1).",
            *_unread_note(losses, ladder),
            *left_out_notes(scores.left_out | plain.left_out),
        ],
        figures={
            "figure-1-zero-shot-over-size": lambda figure: panels_over_sizes(
                figure,
                {COLUMNS[column]: of for column, of in scores.values.items()},
                sizes,
                "",
                rows=2,
                references=_cbt_lines(),
            ),
            "figure-4-train-and-test": lambda figure: _draw_parts(figure, losses, sizes),
        },
    )


def _cbt_lines() -> dict[str, dict[str, float]]:
    """Return figure 2's lines: humans, and the best system before GPT-2."""
    lines = reference_lines(dict.fromkeys(_CBT, 100))
    for name, column in _CBT.items():
        lines[name]["earlier best"] = TABLES["gpt2-table-3"].value("state of the art", column) / 100
    return lines


def table_3(laboratory: Laboratory, rung: str, seed: int) -> tuple[Results, Path]:
    """Return the scores of one model on table 3's sets, and the folder with every example."""
    return _scores(laboratory, "table 3", COLUMNS, rung, seed)


def _scores(
    laboratory: Laboratory, what: str, columns: Mapping[Column, str], rung: str, seed: int
) -> tuple[Results, Path]:
    limit = laboratory.scale.settings("gpt2_zero_shot", ZeroShotSettings).limit
    tasks = list(dict.fromkeys(protocol for protocol, _ in columns))
    return laboratory.evaluate(f"{what}, {rung}, seed {seed}", laboratory.model(rung, seed), tasks, limit=limit)


def _losses(laboratory: Laboratory, rung: str, seed: int, windows: int) -> dict[str, dict[str, float]]:
    """Return the loss of one model on each part that has windows."""
    plan = laboratory.scale.models[rung]
    recipe = PretrainConfig.build(plan.recipe, {"seed": seed})
    train, held_out = laboratory.tokens(plan.text)
    model = laboratory.model(rung, seed)
    stream = TokenStream(held_out, "validation", recipe.window)
    chosen = {
        "read": (train, "train", windows_read(train, recipe, windows)),
        "unread": (train, "train", windows_unread(train, recipe, windows)),
        "held-out": (held_out, "validation", evenly_placed(stream.windows, windows)),
    }
    names = {part: f"{rung}, seed {seed}, {part}" for part in chosen}
    if not len(chosen["unread"][2]):
        del chosen["unread"]
        laboratory.leave_out("perplexity", names["unread"])
    return {
        part: laboratory.perplexity(names[part], model, tokens, where, places.tolist())
        for part, (tokens, where, places) in chosen.items()
    }


def _unread_note(losses: Mapping[str, Mapping[str, Measured]], ladder: Sequence[str]) -> list[str]:
    """Return a note on the rungs that read every window of their text."""
    whole = [rung for rung in ladder if rung not in losses["unread"]]
    if not whole:
        return []
    return [
        f"{', '.join(whole)} read every window of the training text, so there is no unread text of the same books "
        "to compare with. The claim that all models underfit is left out."
    ]


def bits_fall(claim: PaperClaim, bits: Mapping[str, Measured]) -> Finding:
    """Return the finding on a claim that bits per byte fall at every step of a ladder."""
    levels = [values.linear(-1) for values in bits.values()]
    here = " → ".join(f"{over_seeds(values).value:.3f}" for values in bits.values())
    return judge_steps(claim, levels, here=here)


def _published(column: tuple[str, str]) -> Mapping[str, float]:
    """Return the paper's values of a protocol and metric by model."""
    protocol, metric = column
    return all_tasks()[protocol].published.get(metric, {})


def _columns(scores: ScoreTable) -> list[Finding]:
    findings = []
    for column, of in scores.values.items():
        growing = list(scores.better[column].values())
        findings.append(
            judge(
                CLAIMS["gpt2_zero_shot.column"],
                differences(growing[-1], growing[0]),
                here=" → ".join(f"{over_seeds(values).value:.4g}" for values in of.values()),
                column=COLUMNS[column],
                published=" → ".join(f"{value:g}" for value in _published(column).values()),
            )
        )
    return findings


def _underfitting(losses: Mapping[str, Mapping[str, Measured]], ladder: Sequence[str]) -> list[Finding]:
    """Return the findings on training text; the first one needs unread text for every rung."""
    perplexities = [math.exp(over_seeds(losses["read"][rung]).value) for rung in ladder]
    falls = judge_steps(
        CLAIMS["gpt2_zero_shot.training"],
        [losses["read"][rung].linear(-1) for rung in ladder],
        here=" → ".join(f"{value:.0f}" for value in perplexities),
    )
    if any(rung not in losses["unread"] for rung in ladder):
        return [falls]
    gaps = [differences(losses["unread"][rung], losses["read"][rung]) for rung in ladder]
    mean = mean_of_sets(gaps)
    each = ", ".join(f"{over_seeds(gap).value:.3f}" for gap in gaps)
    strange = over_seeds(differences(losses["held-out"][ladder[-1]], losses["unread"][ladder[-1]]))
    return [
        judge(
            CLAIMS["gpt2_zero_shot.underfits"],
            mean.linear(-1, _TIGHT),
            here=f"unread less training text: {over_seeds(mean).text(3)} nats per token (by size: {each})",
            strange=strange.text(2),
        ),
        falls,
    ]


def _draw_parts(figure: Any, losses: Mapping[str, Mapping[str, Measured]], sizes: Mapping[str, int]) -> None:
    curves = {
        _TITLES[part]: {sizes[rung]: one.map(math.exp) for rung, one in losses[part].items()}
        for part in PARTS
        if losses[part]
    }
    bands(figure, curves, "parameters", "perplexity per token", log_x=True, log_y=True)


ZERO_SHOT = Experiment(
    name="gpt2_zero_shot",
    title="Zero-shot scores over four sizes",
    paper="GPT-2",
    section="3.1 to 3.3 and 4 (table 3, figures 1 and 4)",
    claim="Scores on sets that no model was trained on grow with size, and every size still underfits its text.",
    models=(PREFIX,),
    settings=ZeroShotSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing(NEEDED, data),
    paper_tables=("gpt2-table-3", "sizes", "gpt2-figure-references", "gpt2-figure-4"),
)
