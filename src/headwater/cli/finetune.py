"""`headwater finetune`: a model and labelled rows in, a fine-tuned model folder out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwater.cli.console import (
    MOST_ROWS,
    AsJson,
    Device,
    Download,
    Encoding,
    Limit,
    ModelTokenizer,
    NamedColumns,
    Seed,
    Settings,
    emit,
    fetch_tokenizer,
    local_model,
    named_columns,
    refuse_unused,
    require_file,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.errors import UsageError
from headwater.shipped import DEFAULT, resolve

if TYPE_CHECKING:
    from headwater.finetuning import FinetuneConfig

KEYS = keys_option("headwater.finetuning:FinetuneConfig")

_REGRESS = "regress"  # one text to a score: the input of classify
_MOST_CLASSES, _MOST_PAIRS = 20, 8  # whose table is printed, and confused pairs of more classes
_TRAINING = "Training"
_FROM = "In place of --model and --task: continue from this fine-tuned model, with its head, labels and columns."


def _training(option: str, what: str) -> Any:
    return typer.Option(option, help=what, rich_help_panel=_TRAINING)


def finetune(
    context: typer.Context,
    model: Annotated[
        Path | None,
        typer.Option(help="Model to start from: a folder, a shipped model, or a hub name.", show_default=DEFAULT),
    ] = None,
    init_from: Annotated[Path | None, typer.Option("--from", help=_FROM, metavar="FINE_TUNED")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    train: Annotated[
        Path | None, typer.Option(help="Labelled rows: .csv, .tsv, .xlsx, .jsonl, .json or .parquet.")
    ] = None,
    task: Annotated[
        Literal["classify", "regress", "entail", "similarity", "choice"] | None,
        typer.Option(help="classify, regress, entail, similarity or choice."),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help="Rows to measure on; by default a tenth of --train, and cross-validation of few rows."),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Rows to measure on once, at the end.")] = None,
    tokenizer: ModelTokenizer = None,
    text: Annotated[str | None, typer.Option(help="Column of the text: --column text=COLUMN.")] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the class, the score or the number of the right answer; with target=labels: a,b,c of "
            "0 and 1."
        ),
    ] = None,
    column: NamedColumns = None,
    epochs: Annotated[float | None, _training("--epochs", "Passes over the training rows.")] = None,
    learning_rate: Annotated[
        float | None,
        _training(
            "--learning-rate",
            "Peak learning rate; by default 1e-4 with the recipe lp-ft, else the model's own.",
        ),
    ] = None,
    find_lr: Annotated[
        bool, _training("--find-lr", "Try four learning rates on the validation rows; keep the best.")
    ] = False,
    freeze: Annotated[
        bool, _training("--freeze", "Freeze the model; train a head over a mixture of its layers.")
    ] = False,
    no_baseline: Annotated[
        bool, _training("--no-baseline", "Do not measure a linear baseline, nor look for wrong labels.")
    ] = False,
    device: Device = "auto",
    seed: Seed = 1,
    download: Download = False,
    show: Annotated[
        int | None, typer.Option(help="Print N examples as the model sees them, and exit.", min=1, max=MOST_ROWS)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the training would cost, and exit.")
    ] = False,
    limit: Limit = None,
    encoding: Encoding = "",
    settings: Settings = None,
    list_keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model on labelled rows.

    headwater finetune --model runs/small/model --task classify --train reviews.csv --out sentiment
    """
    from headwater.config import parse_settings

    columns = named_columns(column) | {k: v for k, v in (("text", text), ("label", label)) if v is not None}
    several = columns.get("label")
    if isinstance(several, str) and "," in several and parse_settings(settings or []).get("target") == "labels":
        columns["label"] = [name.strip() for name in several.split(",")]
    keys = {
        "epochs": epochs,
        "learning_rate": "search" if find_lr else learning_rate,
        "freeze": freeze or None,
        "baseline": False if no_baseline else None,
        "limit": limit,
        "encoding": encoding or None,
        "device": device,
    }
    files: dict[str, Any] = {"train": train, "validation": validation, "test": test}
    _check_options(context)
    if out is None and show is None and not dry_run:
        raise UsageError("--out is missing", expected="the folder to write")
    further, kept = None, {}
    if init_from is not None:
        further = local_model(init_from, download)
        from headwater.finetuning import FineTuned

        kept = FineTuned.keys_of(resolve(further))
    config = _configuration(task, seed, columns, kept, keys, settings)
    for path in filter(None, files.values()):
        require_file(path)
    model = further or local_model(model or DEFAULT, download)
    fetch_tokenizer(tokenizer, download)
    common: dict[str, Any] = {"model": model, "tokenizer": tokenizer}
    if show is not None:
        from headwater.finetuning import show_examples

        assert train is not None
        shown = show_examples(config, train=train, count=show, **common)
        emit({"examples": shown}, as_json=as_json, text=_examples_text(shown))
        return
    common["progress"] = terminal_progress()
    if dry_run:
        from dataclasses import asdict

        from headwater.finetuning import forecast

        cost = forecast(config, **files, **common)
        emit(asdict(cost), as_json=as_json, text=cost.as_text())
        return
    assert out is not None
    from headwater.finetuning import finetune as run

    metrics = run(config, out, **files, **common)
    emit({"out": str(out), **metrics}, as_json=as_json, text=_summary(metrics, out))


def _check_options(context: typer.Context) -> None:
    """Raise UsageError for options that exclude each other, and without rows to learn from."""
    given = context.params
    if given["train"] is None or (given["task"] is None and given["init_from"] is None):
        raise UsageError(
            "fine-tuning needs --task and --train, or --from and --train", repair="See headwater finetune --help"
        )
    if given["init_from"] is not None:
        refuse_unused(context, "--from", "model")
    if given["find_lr"]:
        refuse_unused(context, "--find-lr", "learning_rate")


def _configuration(
    task: str | None,
    seed: int,
    columns: Mapping[str, Any],
    kept: Mapping[str, Any],
    keys: Mapping[str, Any],
    settings: list[str] | None,
) -> FinetuneConfig:
    """Return the defaults, changed by the keys `kept` of --from, the options and --set."""
    from headwater.config import option_layers, parse_settings
    from headwater.finetuning import FinetuneConfig

    chosen: dict[str, Any] = {} if kept else {"task": "classify", "recipe": "auto"}
    if task == _REGRESS:
        chosen |= {"task": "classify", "target": "score"}
    elif task is not None:
        chosen["task"] = task
    config = FinetuneConfig.build(
        {**kept, **chosen, "seed": seed, "columns": columns},
        *option_layers(keys),
        parse_settings(settings or []),
        source="the command line",
    )
    if config.epochs is not None and config.steps is not None:
        raise UsageError("epochs and steps both set the length of the training", repair="Leave one of them out")
    return config


def _examples_text(shown: list[dict[str, Any]]) -> str:
    lines = []
    for example in shown:
        label = "without a label" if example["label"] is None else example["label"]
        lines.append(f"row {example['row']}: {label}")
        for sequence in example["sequences"]:
            lines.append(f"  {sequence['text']}   ({sequence['tokens']} tokens)")
        if example["cut"]:
            lines.append(f"  {example['cut']} tokens were cut")
    return "\n".join(lines)


def _summary(metrics: dict[str, Any], out: Path) -> str:
    from headwater.finetuning import result_lines

    lines, classes = result_lines(metrics), metrics.get("classes", [])
    if classes and len(classes) <= _MOST_CLASSES:
        # The class comes last, so that columns align in any script.
        lines.append("precision  recall     f1    rows  predicted  class")
        lines += [
            f"{one['precision']:9.3f}  {one['recall']:6.3f}  {one['f1']:5.3f}  {one['count']:6,}"
            f"  {one['predicted']:9,}  {one['class']}"
            for one in classes
        ]
    elif metrics.get("confused"):
        lines.append("Most often confused:")
        lines += [
            f"  {one['count']:,} of {one['label']!r} taken for {one['predicted']!r}"
            for one in metrics["confused"][:_MOST_PAIRS]
        ]
    is_score, mistakes = metrics.get("target") == "score", metrics.get("mistakes", [])
    if mistakes:
        lines.append("The largest errors:" if is_score else "The most confident mistakes:")
    for one in mistakes:
        shown = f"  row {one['row']:,}: predicted {one['predicted']!r}, labelled {one['label']!r}"
        if is_score:
            shown = f"  row {one['row']:,}: {one['predicted']:.6g}, true {one['label']:.6g}, difference "
            shown += f"{one['difference']:+.6g}"
        lines.append(f"{shown}: {json.dumps(one['text'], ensure_ascii=False)}")
    return "\n".join([*lines, f"headwater predict --model {shlex.quote(str(out))} FILE --out predictions.jsonl"])
