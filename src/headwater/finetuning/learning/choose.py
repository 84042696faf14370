"""Learn from what `prepare` returned: choose between recipes or learning rates where the configuration asks to.

Of few rows a cross-validation chooses between the probe and LP-FT, and then all rows are trained on: the figures
are of rows that a model predicts without having learned from their fold. Of more rows the validation rows choose.
With `learning_rate = "search"` they choose the best of a series of rates.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.config import Recipe
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.probe import Probe, predict_by_probe
from headwater.finetuning.learning.train import (
    TrainingOutcome,
    fit_all_rows,
    is_better,
    measure_probabilities,
    row_weights,
    set_probe,
    train_task,
)
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.pooled import PooledModel
from headwater.finetuning.rows.row import Seen
from headwater.finetuning.rows.split import FOLDS
from headwater.reading import read_json
from headwater.storage import save_array, storage_errors, write_json

# Rates that are tried, as factors of the base's own, and how far the series continues while its end is the best.
FACTORS, LOWEST, HIGHEST = (0.5, 1.0, 2.0, 4.0), 1 / 16, 64.0
# The run's folders for each rate, recipe or fold, until the end, and the journal of a training.
RATES, _JOURNAL = "rates", "metrics.jsonl"
_LOSSES = ("validation_loss", "training_loss")


@dataclass
class Learned:
    """A training and what it was chosen from.

    prepared: for the recipe that was chosen. rates: what a search of the rate tried. recipes: the value, interval
    and loss of each recipe that was compared; the probe is a regression on the unchanged base's features.
    fitted_on_all: whether the head has learned from the validation rows too, at the end.
    """

    prepared: Prepared
    outcome: TrainingOutcome
    rates: list[dict[str, Any]] = field(default_factory=list)
    recipes: dict[Recipe, dict[str, Any]] = field(default_factory=dict)
    fitted_on_all: bool = False

    @property
    def seen(self) -> Seen:
        """The rows that the model and its base were trained on, and those that only measured them."""
        train, validation = self.prepared.parts.train.rows, self.prepared.parts.validation.rows
        trained = [*train, *validation] if self.fitted_on_all else train
        return (self.prepared.seen or Seen()).extended(trained, validation)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the state that is kept: the probe if tuning did not improve on it enough."""
        start = self.outcome.start
        return "probe" if start is not None and start.kept else self.prepared.config.recipe


def learn(prepared: Prepared) -> Learned:
    """Train, and return the best of what the configuration compares."""
    if prepared.given.learning_rate == "search":
        return _search_rate(prepared)
    if not prepared.parts.validation.rows:
        learned = Learned(prepared, train_task(prepared, keep_last=True))
    elif prepared.parts.cross_validated:
        learned = _by_cross_validation(prepared)
    else:
        learned = _by_validation(prepared)
        learned.fitted_on_all = fit_all_rows(learned.prepared, learned.outcome)
    if len(learned.recipes) > 1:
        metric, where = learned.outcome.metric, "the validation rows"
        if prepared.parts.cross_validated:
            where = f"all rows, by cross-validation in {FOLDS} folds"
        others = [f"{name} {one['value']:.3f}" for name, one in learned.recipes.items() if name != learned.recipe]
        value = learned.recipes[learned.recipe]["value"]
        prepared.progress.note(f"{learned.recipe} is used: {metric} {value:.3f} on {where}; {', '.join(others)}")
    if learned.outcome.start is not None:
        prepared.progress.note(f"the probe is {learned.outcome.start.named(prepared.parts.labels)}")
    return learned


def _within(prepared: Prepared, name: str) -> Prepared:
    """Return this for a training of several, with a folder of its own."""
    if prepared.out is None:
        return prepared
    return replace(prepared, out=_subfolder(prepared.out, name))


def _subfolder(out: Path, name: str = "") -> Path:
    """Return a folder below RATES; raise StorageError if `out` was moved or removed since the training began."""
    folder = out / RATES / name
    with storage_errors(out):
        (out / RATES).mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
    return folder


def _keep_journal(prepared: Prepared, name: str) -> None:
    """Make the journal of the training that is kept the run's."""
    if prepared.out is not None and (journal := prepared.out / RATES / name / _JOURNAL).is_file():
        shutil.copyfile(journal, prepared.out / _JOURNAL)


def _by_validation(prepared: Prepared) -> Learned:
    """Train by each recipe, and return the one with the best metric on the validation rows."""
    tried: list[Learned] = []
    for recipe in prepared.recipes:
        one = prepared
        if len(prepared.recipes) > 1:
            one = _within(prepared.for_recipe(recipe), recipe)
        tried.append(Learned(one, train_task(one)))
    best = max(tried, key=lambda one: _figures(one.outcome, one.outcome.best_entry())["value"])
    for learned in tried:
        outcome = learned.outcome
        if outcome.start is not None:
            best.recipes["probe"] = _figures(outcome, outcome.curve[0])
        if tuned := [entry for entry in outcome.curve if entry["step"]]:
            entry = max(tuned, key=lambda one: float(one[best.outcome.metric]["value"]))
            entry = outcome.best_entry() if outcome.best_step else entry
            best.recipes[learned.prepared.config.recipe] = _figures(outcome, entry)
    if len(tried) > 1:
        _keep_journal(prepared, best.prepared.config.recipe)
    return best


def _by_cross_validation(prepared: Prepared) -> Learned:
    """Compare the probe and LP-FT on rows that neither learned from, then train on all rows.

    What each fold's training measured is kept in files until the end, from where a stopped run resumes.
    """
    model = prepared.task_model()
    assert isinstance(model, PooledModel)
    probe, _ = set_probe(prepared, model)
    prepared.loaded.append(model.model)  # which is unchanged
    fine_tuned = FineTuned(model, prepared.tokenizer, prepared.config.task, prepared.parts.labels)
    candidates: tuple[Recipe, ...] = ("probe", "lp-ft")
    prepared.progress.start("cross-validation", FOLDS * len(candidates), "trainings")
    held_out = {
        recipe: _held_out(prepared.for_recipe(recipe), fine_tuned, probe, FOLDS * number)
        for number, recipe in enumerate(candidates)
    }
    prepared.progress.finish()
    metric = prepared.config.checked_metric(prepared.parts.labels)
    (untuned, _), (tuned, _) = held_out.values()
    chosen = prepared.for_recipe("probe" if is_better(untuned, tuned, metric) else "lp-ft")
    outcome = train_task(chosen, probe=probe, keep_last=True)
    outcome.curve = [untuned, tuned]
    outcome.probabilities = held_out[chosen.config.recipe][1]
    figures = {recipe: _figures(outcome, entry) for recipe, (entry, _) in held_out.items()}
    return Learned(chosen, outcome, recipes=figures)


def _held_out(
    prepared: Prepared, fine_tuned: FineTuned, probe: Probe, done: int
) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Return the curve's entry of a recipe, and (rows, outputs): each by a model trained without its fold."""
    fold = prepared.parts.fold
    assert fold is not None
    folds = []
    for number in range(FOLDS):
        folds.append(_without_fold(prepared, number, probe))
        prepared.progress.advance(done + number + 1)
    probabilities = np.empty((len(fold), folds[0][1].shape[1]), np.float32)
    for number, (_, shares) in enumerate(folds):
        probabilities[fold == number] = shares
    figures = measure_probabilities(fine_tuned, prepared.encoded["train"].targets, probabilities)
    losses = {name: float(np.mean([entry[name] for entry, _ in folds])) for name in _LOSSES}
    steps = 0 if prepared.config.recipe == "probe" else prepared.config.steps
    return {"step": steps, **losses, **figures, "epoch": folds[0][0]["epoch"]}, probabilities


def _without_fold(prepared: Prepared, number: int, probe: Probe) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Train without a fold, unless a file has it; return its losses and epoch, and (its rows, outputs)."""
    part, folder = prepared.holding_out(number), prepared.out and prepared.out / RATES
    if prepared.config.recipe == "probe":  # in a moment, from features
        train, labels = part.encoded["train"], part.parts.labels
        weights = row_weights(part.config, train.targets, labels, part.weights)
        losses, shares = predict_by_probe(train, part.encoded["validation"], labels, weights, probe)
        return {**losses, "epoch": 0}, shares
    stem = f"{prepared.config.recipe}-{number}"
    if folder is not None and (folder / f"{stem}.json").is_file():
        return read_json(folder / f"{stem}.json"), np.load(folder / f"{stem}.npy")
    outcome = train_task(part, probe=probe, keep_last=True)
    entry = {name: outcome.best_entry()[name] for name in (*_LOSSES, "epoch")}
    if prepared.out is not None:
        folder = _subfolder(prepared.out)
        save_array(folder / f"{stem}.npy", outcome.probabilities)
        write_json(folder / f"{stem}.json", entry)  # last: the array is complete
    return entry, outcome.probabilities


def _figures(outcome: TrainingOutcome, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry[outcome.metric], "validation_loss": entry["validation_loss"]}


def _search_rate(prepared: Prepared) -> Learned:
    """Return the training with the best rate, and what each rate gave, in order of the rates.

    Each rate is a whole training. Of equal ones the lower loss wins. If the lowest or the highest rate is the
    best, the series continues in its direction. A search that was stopped resumes each rate from its checkpoint.
    """
    own = prepared.config.peak_rate(prepared.shape)
    tried: dict[float, dict[str, Any]] = {}
    best: TrainingOutcome | None = None
    left = list(FACTORS)
    while left:
        rate = float(f"{own * left.pop(0):.3g}")
        outcome = train_task(_within(prepared.with_keys(learning_rate=rate), f"{rate:g}"))
        metric, entry = outcome.metric, outcome.best_entry()
        value, loss = entry[metric]["value"], entry["validation_loss"]
        prepared.progress.note(f"learning rate {rate:g}: {metric} {value:.3f}, validation loss {loss:.4f}")
        tried[rate] = {"learning_rate": rate, metric: value, "validation_loss": loss}
        best_rate = max(sorted(tried), key=lambda one: (tried[one][metric], -tried[one]["validation_loss"]))
        if rate == best_rate:
            best = outcome
        left = left or _beyond(sorted(tried), best_rate, own)
    assert best is not None
    _keep_journal(prepared, f"{best.learning_rate:g}")
    return Learned(prepared, best, rates=[tried[rate] for rate in sorted(tried)])


def _beyond(rates: list[float], best: float, own: float) -> list[float]:
    """Return the factor that continues the series beyond its best end; none if the best rate is inside."""
    factor = best / own
    if best == rates[-1] and 2 * factor <= HIGHEST:
        return [2 * factor]
    return [factor / 2] if best == rates[0] and factor / 2 >= LOWEST else []
