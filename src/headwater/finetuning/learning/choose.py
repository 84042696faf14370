"""Learn from what `prepare` returned: choose between recipes or learning rates where the configuration asks to.

Of few rows a cross-validation chooses between the probe and LP-FT, and then all rows are trained on: the figures
are of rows that a model predicts without having learned from their fold. Of more rows the validation rows choose.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.config import Recipe
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.search import JOURNAL, RATES, search_rate
from headwater.finetuning.learning.start import Start
from headwater.finetuning.learning.train import (
    TrainingOutcome,
    begin_head,
    fit_all_rows,
    is_better,
    measure_probabilities,
    train_task,
)
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.rows.split import FOLDS
from headwater.reading import read_json
from headwater.storage import SILENT, Progress, save_array, write_json
from headwater.training import OnUpdate

_LOSSES = ("validation_loss", "training_loss")


@dataclass
class Learned:
    """A training and what it was chosen from.

    prepared: for the recipe that was chosen. rates: what a search of the rate tried. recipes: the value, interval
    and loss of each recipe that was compared; the probe is a regression on the unchanged base's features.
    """

    prepared: Prepared
    outcome: TrainingOutcome
    rates: list[dict[str, Any]] = field(default_factory=list)
    recipes: dict[Recipe, dict[str, Any]] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the state that is kept: the probe if tuning did not improve on it enough."""
        start = self.outcome.start
        return "probe" if start is not None and start.kept else self.prepared.config.recipe


def learn(
    prepared: Prepared, progress: Progress = SILENT, *, out: Path | None = None, on_update: OnUpdate | None = None
) -> Learned:
    """Train, and return the best of what the configuration compares; `out` and `on_update` as in `train_task`."""
    if prepared.given.learning_rate == "search":
        outcome, rates = search_rate(prepared, progress, out=out, on_update=on_update)
        return Learned(prepared, outcome, rates=rates)
    if prepared.parts.cross_validated:
        learned = _by_cross_validation(prepared, progress, out, on_update)
    else:
        learned = _by_validation(prepared, progress, out, on_update)
        fit_all_rows(learned.prepared, learned.outcome, progress)
    if len(learned.recipes) > 1:
        metric, where = learned.outcome.metric, "the validation rows"
        if prepared.parts.cross_validated:
            where = f"all rows, by cross-validation in {FOLDS} folds"
        others = [f"{name} {one['value']:.3f}" for name, one in learned.recipes.items() if name != learned.recipe]
        value = learned.recipes[learned.recipe]["value"]
        progress.note(f"{learned.recipe} is used: {metric} {value:.3f} on {where}; {', '.join(others)}")
    if learned.outcome.start is not None:
        progress.note(f"the probe is {learned.outcome.start.named(prepared.parts.labels)}")
    return learned


def _by_validation(
    prepared: Prepared, progress: Progress, out: Path | None, on_update: OnUpdate | None
) -> Learned:
    """Train by each recipe, and return the one with the best metric on the validation rows."""
    tried: list[Learned] = []
    for recipe in prepared.recipes:
        one, folder = prepared, out
        if len(prepared.recipes) > 1:
            one, folder = prepared.for_recipe(recipe), out and out / RATES / recipe
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        tried.append(Learned(one, train_task(one, progress, out=folder, on_update=on_update)))
    best = max(tried, key=lambda one: _figures(one.outcome, one.outcome.best_entry())["value"])
    for learned in tried:
        outcome = learned.outcome
        if outcome.start is not None:
            best.recipes["probe"] = _figures(outcome, outcome.curve[0])
        if tuned := [entry for entry in outcome.curve if entry["step"]]:
            entry = max(tuned, key=lambda one: float(one[best.outcome.metric]["value"]))
            entry = outcome.best_entry() if outcome.best_step else entry
            best.recipes[learned.prepared.config.recipe] = _figures(outcome, entry)
    if out is not None and len(tried) > 1:
        journal = out / RATES / best.prepared.config.recipe / JOURNAL
        if journal.is_file():
            shutil.copyfile(journal, out / JOURNAL)
    return best


def _by_cross_validation(
    prepared: Prepared, progress: Progress, out: Path | None, on_update: OnUpdate | None
) -> Learned:
    """Compare the probe and LP-FT on rows that neither learned from, then train on all rows.

    What each fold's training measured is kept in `out` until the end, from where a stopped run resumes.
    """
    model = prepared.task_model()
    probe, _ = begin_head(prepared, model, None, progress)
    labeller = FineTuned(model, prepared.tokenizer, prepared.config.task, prepared.parts.labels)
    candidates: tuple[Recipe, ...] = ("probe", "lp-ft")
    progress.start("cross-validation", FOLDS * len(candidates), "trainings")
    held = {
        recipe: _held_out(prepared.for_recipe(recipe), labeller, probe, progress, FOLDS * number, out)
        for number, recipe in enumerate(candidates)
    }
    progress.finish()
    metric = prepared.config.checked_metric(prepared.parts.labels)
    (untuned, _), (tuned, _) = held.values()
    chosen = prepared.for_recipe("probe" if is_better(untuned, tuned, metric) else "lp-ft")
    outcome = train_task(chosen, progress, out=out, probe=probe, keep_last=True, on_update=on_update)
    outcome.curve = [untuned, tuned]
    outcome.probabilities = held[chosen.config.recipe][1]
    figures = {recipe: _figures(outcome, entry) for recipe, (entry, _) in held.items()}
    return Learned(chosen, outcome, recipes=figures)


def _held_out(
    prepared: Prepared, labeller: FineTuned, probe: Start, progress: Progress, done: int, out: Path | None
) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Return the curve's entry of a recipe, and (rows, outputs): each by a model trained without its fold."""
    assert prepared.fold is not None
    folds = []
    for number in range(FOLDS):
        folds.append(_without_fold(prepared, number, probe, None if out is None else out / RATES))
        progress.advance(done + number + 1)
    probabilities = np.empty((len(prepared.fold), folds[0][1].shape[1]), np.float32)
    for number, (_, shares) in enumerate(folds):
        probabilities[prepared.fold == number] = shares
    figures = measure_probabilities(labeller, prepared.encoded["train"].targets, probabilities)
    losses = {name: float(np.mean([entry[name] for entry, _ in folds])) for name in _LOSSES}
    steps = 0 if prepared.config.recipe == "probe" else prepared.config.training.steps
    return {"step": steps, **losses, **figures, "epoch": folds[0][0]["epoch"]}, probabilities


def _without_fold(
    prepared: Prepared, number: int, probe: Start, folder: Path | None
) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Train without a fold, unless `folder` has it; return its losses and epoch, and (its rows, outputs)."""
    if folder is None:
        return _measured(train_task(prepared.holding_out(number), probe=probe, keep_last=True))
    stem = f"{prepared.config.recipe}-{number}"
    entries, shares = folder / f"{stem}.json", folder / f"{stem}.npy"
    if not entries.is_file():
        entry, probabilities = _without_fold(prepared, number, probe, None)
        folder.mkdir(parents=True, exist_ok=True)
        save_array(shares, probabilities)
        write_json(entries, entry)  # last: what it stands beside is whole
    return read_json(entries), np.load(shares)


def _measured(outcome: TrainingOutcome) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    entry = outcome.best_entry()
    return {name: entry[name] for name in (*_LOSSES, "epoch")}, outcome.probabilities


def _figures(outcome: TrainingOutcome, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry[outcome.metric], "validation_loss": entry["validation_loss"]}
