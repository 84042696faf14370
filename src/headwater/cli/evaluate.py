"""`headwater evaluate`: score a model zero-shot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.console import (
    AsJson,
    Device,
    Download,
    Limit,
    Settings,
    emit,
    local_model,
    refuse_unused,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.display import counted
from headwater.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from headwater.evaluation import Result, Results

KEYS = keys_option("headwater.evaluation:EvaluateConfig")


# The parameters that only scoring uses.
_SCORING = ("model", "download", "out", "limit", "device", "settings", "overlap")


def evaluate(
    context: typer.Context,
    model: Annotated[Path | None, typer.Option(help="Model folder, a shipped model, or a hub name.")] = None,
    download: Download = False,
    tasks: Annotated[
        str,
        typer.Option(
            help="Protocols, comma-separated. A prefix that ends before a dot, such as lambada, selects all that "
            "start with it. A task file (.toml) describes a task of your own."
        ),
    ] = "",
    data: Annotated[list[Path] | None, typer.Option(help="Folder with the tasks' files. Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    limit: Limit = None,
    device: Device = "auto",
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
    overlap: Annotated[
        Path | None, typer.Option(help="Training corpus: also score without the examples that overlap with it.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Print the paired differences of two results folders.", metavar="A B"),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the protocols (of --tasks), and which have their files in --data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a model zero-shot, one protocol for each way to read a benchmark, next to the papers' values.

    Example: headwater evaluate --model runs/small/model --tasks heldout --data tokens --out results
    """
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    if list_:
        refuse_unused(context, "--list", "compare", *_SCORING)
        _list(names, data or [], as_json)
        return
    if compare:
        refuse_unused(context, "--compare", "tasks", "data", *_SCORING)
        _compare(*compare, as_json=as_json)
        return
    if model is None or not names or not data or out is None:
        needed = {"--model": model, "--tasks": names, "--data": data, "--out": out}
        missing = ", ".join(option for option, value in needed.items() if not value)
        raise UsageError(f"{missing} is missing", repair="See: headwater evaluate --help")
    from headwater.config import parse_settings
    from headwater.evaluation import EvaluateConfig, select
    from headwater.evaluation import evaluate as run

    config = EvaluateConfig.build(parse_settings(settings or []), source="--set")
    model = local_model(model, download)
    results = run(
        model,
        names,
        data,
        out,
        config=config,
        overlap=overlap,
        limit=limit,
        device=device,
        progress=terminal_progress(),
    )
    emit({"out": str(out), **results.to_dict()}, as_json=as_json, text="\n".join([f"{out}:", *_lines(results)]))
    # A name that selects several protocols has a score if one of them has: few models and folders fit them all.
    scored = {result.protocol for result in results.results}
    unscored = [name for name in names if scored.isdisjoint(task.protocol for task in select([name]))]
    covered = {task.protocol for name in unscored for task in select([name])}
    unscored += [entry.protocol for entry in results.skipped if entry.failed and entry.protocol not in covered]
    if unscored:
        raise ResourceError(
            f"{', '.join(unscored)}: no score, for the reason above; {out} has the other scores",
            repair=f"Remove {out} and run the same command again: it has the answers that were computed",
        )


def _lines(results: Results) -> Iterator[str]:
    """Yield a line for each score, and for what was skipped."""
    yield from map(_line, results.results)
    for skip in results.skipped:
        left_out = "skipped." if skip.examples is None else f"{counted(skip.examples, 'example')} left out, as"
        yield f"  {skip.protocol}: {left_out} {skip.reason}"


def _line(result: Result) -> str:
    from headwater.intervals import of_score

    low, high = of_score(result.metric, result.value, result.stderr, result.count)
    interval = "" if low is None else f" [{_number(low)}, {_number(high)}]"
    chance = f", chance {result.chance:.4g}" if result.chance is not None else ""
    more = "".join(f", {y['name']} {y['bits_per_byte']:.4f}" for y in result.details.get("yardsticks", []))
    more += "".join(_remarks(result.details))
    published = "".join(f", {name} {value:g} published" for name, value in result.published.items())
    return (
        f"  {result.protocol}  {result.metric} {_number(result.value)}{interval}"
        f" on {result.examples}{chance}{more}{published}"
    )


def _remarks(details: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the score does not cover: lost text, cut contexts, another set, overlap."""
    if lost := details.get("lost text"):
        kinds = ", ".join(f"{kind} {share:.1%}" for kind, share in lost.items() if kind != "lost")
        yield f", the tokenizer loses {lost['lost']:.1%} of the text ({kinds})"
    if cut := details.get("cut contexts"):
        yield f", {counted(cut, 'context')} cut to fit the model"
    if other := details.get("not the published set"):
        yield f", not compared with published values: {other} is not the published set"
    if overlap := details.get("overlap"):
        if "value without" in overlap:
            yield f", {overlap['value without']:.4f} without {overlap['examples']:,} overlapping"
        else:
            yield f", {overlap['examples']:,} of {overlap['judged']:,} overlap with the training text"
        if overlap["cannot be judged"]:
            yield f", {overlap['cannot be judged']:,} too short to be judged"


def _number(value: float | None) -> str:
    from headwater.report import EXPONENT_FROM

    assert value is not None
    return f"{value:.4f}" if abs(value) < EXPONENT_FROM else f"{value:.4g}"


def _compare(a: Path, b: Path, *, as_json: bool) -> None:
    from dataclasses import asdict

    from headwater.evaluation import compare

    differences = compare(a, b, terminal_progress())
    lines = []
    for d in differences:
        interval = "" if d.low is None else f", 95 % from {d.low:+.4f} to {d.high:+.4f}"
        lines.append(
            f"{d.protocol}  {d.metric}  {d.a:.4f} → {d.b:.4f}, difference {d.difference:+.4f}{interval}"
            f" on {counted(d.count, 'example')}"
        )
    emit(
        {"a": str(a), "b": str(b), "differences": [asdict(difference) for difference in differences]},
        as_json=as_json,
        text="\n".join(lines),
    )


def _list(names: list[str], data: list[Path], as_json: bool) -> None:
    from headwater.evaluation import DataFiles, all_tasks, missing_benchmarks, select
    from headwater.plugins import INSTALL_PAPERS, PAPERS

    tasks = select(names) if names else list(all_tasks().values())
    located, missing = DataFiles(data).locate_tasks(tasks)
    width = max(len(task.protocol) for task in tasks)
    listed, lines = list[dict[str, Any]](), list[str]()
    for task in tasks:
        files, absent = {role: str(path) for role, path in located.get(task, {}).items()}, missing.get(task, "")
        metrics = [metric.name for metric in task.metrics]
        about = {"protocol": task.protocol, "summary": task.summary, "metrics": metrics}
        listed.append(about | {"found": files, "missing": absent})
        state = "" if not data else (f"  missing: {absent}" if absent else "  here")
        lines.append(f"{task.protocol.ljust(width)}  {task.summary}{state}")
    content: dict[str, Any] = {"protocols": listed}
    if not names and (benchmarks := missing_benchmarks()):
        content["not installed"] = {PAPERS: benchmarks}
        lines += ["", f"{PAPERS} has {', '.join(benchmarks)}. It is not installed: {INSTALL_PAPERS}"]
    emit(content, as_json=as_json, text="\n".join(lines))
