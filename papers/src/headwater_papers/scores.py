"""Scores of evaluations as tables for experiments: by column and model, one value a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater.evaluation import Result, Results, read_examples
from headwater.finetuning import matthews
from headwater_papers.experiment import Row
from headwater_papers.items import ItemValues, errors_by_seed, of_two_classes, pseudo_values, ratio_values
from headwater_papers.laboratory import Laboratory
from headwater_papers.statistics import Measured

Column = tuple[str, str]  # protocol, metric


class ScoreTable:
    """Scores of several models on the same columns, without columns that no evaluation has.

    values: column -> model -> one value a seed. better: the same with higher values better, with values by item if
    known. counts: examples by column. left_out: protocols that were skipped, and why.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = tuple(columns)
        self.values: dict[Column, dict[str, Measured]] = {}
        self.better: dict[Column, dict[str, Measured]] = {}
        self.counts: dict[Column, int] = {}
        self.left_out: dict[str, str] = {}

    def add(self, laboratory: Laboratory, model: str, results: Results, folder: Path) -> None:
        """Add the evaluation of a model's next seed; its items are in `folder`."""
        data = str(laboratory.data)  # results do not name folders of this machine
        self.left_out |= {
            entry.protocol: entry.reason.replace(data, "the data folder")
            for entry in results.skipped
            if entry.examples is None
        }
        for column in self._columns:
            result = result_of(results, *column)
            if result is not None:
                one = better(result, folder)
                for table, value, error, items in (
                    (self.values, result.value, result.stderr, one.items if result.higher_is_better else None),
                    (self.better, one[0], one.errors[0], one.items),
                ):
                    table.setdefault(column, {}).setdefault(model, Measured()).add(value, error, items)
                self.counts[column] = result.count

    def rows(
        self,
        models: Mapping[str, str],
        measures: Mapping[Column, str],
        published: Callable[[Column, str], float | None] = lambda column, model: None,
        note: Callable[[str], str] = lambda model: "",
    ) -> list[Row]:
        """Return a row for each column and model, with their titles; `published` and `note` are of a model."""
        return [
            Row(models[name], measures[column], values, published(column, name), self.counts[column], note(name))
            for column, of in self.values.items()
            for name, values in of.items()
        ]


def left_out_notes(left_out: Mapping[str, str]) -> list[str]:
    """Return a note on each reason for which protocols were left out."""
    reasons = dict.fromkeys(left_out.values())
    named = {reason: [protocol for protocol, why in left_out.items() if why == reason] for reason in reasons}
    return [f"Left out: {', '.join(protocols)}. {reason}" for reason, protocols in named.items()]


def better(result: Result, folder: Path) -> Measured:
    """Return a result's value and items so that higher is better; a perplexity becomes minus its logarithm."""
    plain = Measured([result.value], [result.stderr])
    if result.metric == "perplexity":
        plain = plain.map(lambda value: -math.log(value))
    elif not result.higher_is_better:
        plain = plain.linear(-1.0)
    values = item_values(result, list(read_examples(folder, result.protocol)))
    # All protocols of a benchmark have the same items, so summaries with and without a hint are paired.
    items = None if values is None else {result.task: values}
    return Measured(plain, errors_by_seed(items) if items else plain.errors, items)


def item_values(result: Result, records: Sequence[Mapping[str, Any]]) -> ItemValues | None:
    """Return one value an example, whose mean is `better`; None if the metric has no such values.

    A correlation has jackknife pseudo-values. BLEU and a score over the most confident answers have no items.
    """
    if not records:
        return None
    if result.metric == "matthews":
        records = [record for record in records if not record["tuned"]]
        chosen = np.array([float(record["value"] > result.details["threshold"]) for record in records])
        labels = np.array([float(record["label"] == 1) for record in records])
        values = pseudo_values(labels, chosen, of_two_classes(matthews))
    elif not result.higher_is_better and "nats" in records[0]:
        nats, units = (np.array([record[key] for record in records]) for key in ("nats", "units"))
        values = -ratio_values(nats, units) / (math.log(2) if result.metric.startswith("bits") else 1)
    elif result.metric == "perplexity":
        values = np.array([record["log_probability"] for record in records])
    elif all(result.metric in record for record in records):
        values = np.array([float(record[result.metric]) for record in records])
    else:
        return None
    return ItemValues(tuple(str(record["id"]) for record in records), values[None])


def result_of(results: Results, protocol: str, metric: str) -> Result | None:
    """Return one metric of one protocol; None if it was skipped."""
    return next((one for one in results.results if (one.protocol, one.metric) == (protocol, metric)), None)
