"""The labelled sets that a model that ships is fine-tuned on, and the scores for its card."""

from __future__ import annotations

import csv
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.finetuning import Raw
    from headwater_papers.task_sets import Found

# The labelled sets that a model is fine-tuned on, by language: ROWS rows of each, once for each seed. RACE, the
# twelfth of GPT-1's sets, is not among them: its passages are longer than the context.
CHATBOT = "ChatbotData"
LABELLED: dict[str, tuple[str, ...]] = {
    "en": ("sst2", "cola", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "snli", "scitail", "storycloze"),
    "ko": (CHATBOT,),
}
ROWS = 2_000
SEEDS = (1, 2, 3, 4, 5)
SEEDS_OF_ALL = SEEDS[:1]  # for all rows of a set: a training takes up to a quarter of an hour


def fine_tune(
    model: Path,
    name: str,
    language: str,
    data: Sequence[Path],
    work: Path,
    limit: int | None,
    sets: Sequence[str] | None,
    all_rows: Sequence[str] = (),
    known: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the entries of the labelled sets of a language, or of `sets`, and of `all_rows` with all their rows.

    known: earlier entries, which are kept for other sets and numbers of rows.
    """
    order, suffix = LABELLED[language], "" if limit is None else f"-{limit}"
    chosen = [(one, False) for one in (order if sets is None else sets)] + [(one, True) for one in all_rows]
    found = [
        fine_tune_one(model, one, data, work / f"{name}-{one}{'-all' if whole else ''}{suffix}", limit, whole)
        for one, whole in chosen
    ]
    entries = {(entry["name"], entry["rows"]): entry for entry in [*known, *found]}
    return [entries[key] for key in sorted(entries, key=lambda key: (order.index(key[0]), key[1]))]


def fine_tune_one(
    model: Path, name: str, data: Sequence[Path], work: Path, limit: int | None, all_rows: bool = False
) -> dict[str, Any]:
    """Return a labelled set's metric after fine-tuning on ROWS of its rows, or on all, next to the baseline's.

    A part of these rows chooses the epoch. `limit` is the most rows to test.
    """
    from headwater.finetuning import FinetuneConfig
    from headwater.model import load_config
    from headwater.storage import PlainProgress
    from headwater_papers.task_sets import run_one

    found = chatbot(data) if name == CHATBOT else published(name, data)
    ((test, tested),) = found.tests.items()
    if all_rows and len(found.train) <= ROWS:
        raise SystemExit(f"{name} has {len(found.train):,} rows to train on; --all-rows needs more than {ROWS:,}")
    rows = found.train if all_rows else drawn(found.train, ROWS)
    found = replace(found, train=rows, tests={test: drawn(tested, limit)})
    runs = [
        run_one(FinetuneConfig(seed=seed), found, model=model, out=work / f"seed-{seed}", progress=PlainProgress())
        for seed in (SEEDS_OF_ALL if all_rows else SEEDS)
    ]
    settings = FinetuneConfig().with_keys(**found.benchmark.fine_tuning)
    metric, measured = found.benchmark.metric, [run["tests"][test] for run in runs]
    values = [one[metric]["value"] for one in measured]
    return {
        "name": name,
        "rows": len(found.train),
        "epochs": settings.epochs_for(runs[0]["counts"]["train"]),
        "learning_rate": settings.peak_rate(load_config(model)),
        "tested": measured[0]["labelled"],
        "metric": metric,
        "value": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": len(values),
        "baseline": statistics.fmean(one["baseline"]["value"] for one in measured),
        "baseline_name": statistics.mode(one["baseline"]["name"] for one in measured),
        "remarks": found.remarks,
    }


def published(name: str, data: Sequence[Path]) -> Found:
    """Return one of GPT-1's sets with a single test part: the labelled one, else the development part."""
    from headwater_papers.task_sets import BY_NAME, find

    benchmark = BY_NAME[name]
    found = next(filter(None, (find(benchmark, folder / "finetune") for folder in data)), None)
    if found is None:
        missing = f"finetune/{benchmark.folders[0]}, which the card needs"
        raise SystemExit(f"{', '.join(map(str, data))} has no {missing}")
    labelled = {part: rows for part, rows in found.tests.items() if rows[0].label is not None}
    if labelled or found.validation is None:
        return replace(found, validation=None, tests=dict(list(labelled.items())[:1]))
    remarks = [*found.remarks, "tested on the development part"]
    return replace(found, validation=None, tests={next(iter(benchmark.tests)): found.validation}, remarks=remarks)


def chatbot(data: Sequence[Path]) -> Found:
    """Return ChatbotData's questions and their labels, each text once, so that no test row was trained on."""
    from headwater.finetuning import Raw
    from headwater_papers.task_sets import Benchmark, Found, Test

    path = next((place for folder in data for place in folder.rglob(f"{CHATBOT}.csv")), None)
    if path is None:
        raise SystemExit(f"{', '.join(map(str, data))} has no {CHATBOT}.csv, which the card needs")
    with path.open(encoding="utf-8", newline="") as file:
        labels = {row["Q"]: row["label"].strip() for row in csv.DictReader(file)}
    rows = [Raw((text,), label, number) for number, (text, label) in enumerate(labels.items(), start=1)]
    random.Random(0).shuffle(rows)
    one = Benchmark(
        name=CHATBOT, folders=(), task="classify", train=(), tests={"test": Test(sources=())}, target="class"
    )
    return Found(one, rows[:ROWS], None, {"test": rows[ROWS:]}, {"rows": path}, [])


def drawn(rows: Sequence[Raw], count: int | None) -> list[Raw]:
    """Return `count` rows drawn with seed 0, or all in their order if there are no more."""
    return list(rows) if count is None or count >= len(rows) else random.Random(0).sample(rows, count)
