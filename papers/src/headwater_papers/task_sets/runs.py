"""`headwater finetune-sets`: fine-tune one model on each available set of the paper, and write one table.

`out/NAME` is the fine-tuned model of a set; the same command, run again, resumes where it stopped. `out/glue` has
the predictions of test parts with hidden labels, in the GLUE server's format. `table.json` and `table.md` compare
every result with the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.errors import DataError, UsageError
from headwater.evaluation import read_json_rows
from headwater.finetuning import FinetuneConfig, arrange_rows, run_stage
from headwater.storage import SILENT, Progress, storage_errors, write_json, write_text
from headwater_papers.paper_tables import gpt1
from headwater_papers.task_sets.benchmarks import Benchmark
from headwater_papers.task_sets.hub import fetch
from headwater_papers.task_sets.sets import Found, choose, find, is_there

EPOCHS = 3.0  # GPT-1, section 4.1
# GPT-1's table 4 has all metrics in per cent.
_PERCENT = 100


def run_sets(
    config: FinetuneConfig,
    names: str,
    data: Path,
    *,
    model: Path,
    out: Path,
    download: bool = False,
    progress: Progress = SILENT,
) -> tuple[dict[str, Any], str]:
    """Fine-tune on each chosen set in `data`; return {"rows": […], "missing": […]}, and the same as Markdown.

    Without a number of epochs or steps, each set has the paper's three epochs. `download` fetches missing sets
    first. `config.limit` truncates every part of every set. Raises DataError if no set is available, UsageError
    for a key that each set decides.
    """
    chosen = choose(names)
    for key in ("columns", *chosen[0].fine_tuning):
        if getattr(config, key) != getattr(FinetuneConfig(), key):
            raise UsageError(f"{key} was given, but each set has its own", repair="Leave it out")
    if config.epochs is None and config.steps is None:
        config = config.model_copy(update={"epochs": EPOCHS})
    if download:
        for benchmark in chosen:
            if benchmark.hub is not None and not is_there(benchmark, data):
                fetch(benchmark.hub, data / benchmark.folders[0], progress)
    # Read all, to report a damaged set before the first training, and keep none in memory.
    there = [benchmark for benchmark in chosen if find(benchmark, data) is not None]
    if not there:
        raise DataError(
            f"{data} has none of {', '.join(benchmark.name for benchmark in chosen)}",
            repair="Check --data, or fetch them: --download",
        )
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for benchmark in there:
        name, one = benchmark.name, find(benchmark, data)
        assert one is not None
        progress.note(f"{name}: {', '.join(one.remarks) or 'official parts'}")
        metrics = run_one(config, one, model=model, out=out / name, progress=progress)
        rows += table_rows(benchmark, one.remarks, metrics)
        write_glue_files(one, out / name, out / "glue", metrics)
    missing = [benchmark.name for benchmark in chosen if benchmark not in there]
    table = {"model": str(model), "rows": rows, "missing": missing}
    write_json(out / "table.json", table)
    text = table_text(table)
    write_text(out / "table.md", text + "\n")
    return table, text


def run_one(
    config: FinetuneConfig,
    located: Found,
    *,
    model: Path,
    out: Path,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fine-tune on one set; return its metrics."""
    benchmark = located.benchmark
    settings = config.with_keys(**benchmark.fine_tuning)
    parts = {"train": located.train, **located.tests}
    if located.validation is not None:
        parts["validation"] = located.validation
    tables = {part: (f"{benchmark.name} {part}", rows[: config.limit]) for part, rows in parts.items()}
    return run_stage(
        settings, out, lambda: arrange_rows(settings, tables), model=model, inputs=located.paths, progress=progress
    )


def table_rows(benchmark: Benchmark, remarks: Sequence[str], metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each labelled test part, else one for validation: metrics and the paper's result."""
    parts = {name: test for name, test in metrics["tests"].items() if benchmark.metric in test}
    if not parts:
        remarks = [*remarks, "measured on validation, which also chose the epoch"]
        parts = {next(iter(benchmark.tests)): {"labelled": metrics["count"], **metrics["scores"]}}
    rows = []
    for name, measured in parts.items():
        for metric in (benchmark.metric, *benchmark.also):
            rows.append(
                {
                    "task": name,
                    "metric": metric,
                    "value": measured[metric]["value"],
                    "interval": measured[metric]["interval"],
                    "count": measured["labelled"],
                    "train": metrics["counts"]["train"],
                    "published": gpt1(name) / _PERCENT if metric == benchmark.metric else None,
                    "remarks": list(remarks),
                }
            )
    return rows


def write_glue_files(located: Found, folder: Path, out: Path, metrics: Mapping[str, Any]) -> None:
    """Write the GLUE server's files for test parts with hidden labels."""
    for name, test in located.benchmark.tests.items():
        measured = metrics["tests"].get(name)
        if not test.glue_file or measured is None or measured["labelled"]:
            continue
        predictions = read_json_rows(
            folder / f"predictions-{name}.jsonl", lambda row: row["prediction"], "predictions"
        )
        lines = ["index\tprediction"]
        for index, label in enumerate(predictions):
            lines.append(f"{index}\t{label:.3f}" if isinstance(label, float) else f"{index}\t{label}")
        with storage_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        write_text(out / test.glue_file, "\n".join(lines) + "\n")


def table_text(table: Mapping[str, Any]) -> str:
    """Return the table as Markdown, in per cent."""
    lines = ["| task | metric | here | 95 % interval | GPT-1 | rows | trained on | remarks |", "|---" * 8 + "|"]
    for row in table["rows"]:
        low, high = row["interval"]
        published = f"{row['published'] * _PERCENT:.1f}" if row["published"] is not None else ""
        lines.append(
            f"| {row['task']} | {row['metric']} | {row['value'] * _PERCENT:.1f} "
            f"| {low * _PERCENT:.1f} to {high * _PERCENT:.1f} | {published} | {row['count']:,} | {row['train']:,} "
            f"| {'; '.join(row['remarks'])} |"
        )
    if table["missing"]:
        lines.append(f"\nMissing: {', '.join(table['missing'])}")
    return "\n".join(lines)
