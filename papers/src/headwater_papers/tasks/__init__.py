"""The zero-shot protocols that only the papers ask for; `headwater evaluate` finds them by `headwater.tasks`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.config import read_toml
from headwater.evaluation import Task
from headwater_papers.paper_tables import MODELS, SIZES, TABLES
from headwater_papers.tasks import cbt, generation, pronouns, questions, sentences, summaries

TASKS: list[Task] = [
    *cbt.TASKS,
    *generation.TASKS,
    *pronouns.TASKS,
    *questions.TASKS,
    *sentences.TASKS,
    *summaries.TASKS,
]
# By protocol and metric: where the papers print the result.
PLACES = read_toml(Path(__file__).with_name("published.toml"))


def published(protocol: str, metric: str) -> Mapping[str, float]:
    """Return the published values of a protocol and metric by model: the four sizes, or one."""
    place = PLACES[protocol][metric]
    table, scale = TABLES[place["table"]], place.get("divide", 1)
    one = {place.get("model", MODELS[-1]): place["row"]} if "row" in place else {}
    rows = one or dict(zip(MODELS, SIZES, strict=True))
    return {model: round(table.value(row, place["column"]) / scale, 6) for model, row in rows.items()}


for _task in TASKS:
    _places = PLACES.get(_task.protocol, {})
    _task.published_set = _places.get("set", {})
    _task.published = {metric: published(_task.protocol, metric) for metric in _places if metric != "set"}
