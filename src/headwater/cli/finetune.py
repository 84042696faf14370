"""`headwater finetune`: labelled rows and a base in, a fine-tuned model folder out."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli.console import (
    MOST_ROWS,
    AsJson,
    Device,
    Limit,
    NamedColumns,
    Seed,
    Settings,
    emit,
    local_model,
    named_columns,
    require_file,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.errors import UsageError

if TYPE_CHECKING:
    from headwater.finetuning import ShownExample

KEYS = keys_option("headwater.finetuning:FinetuneConfig")


def finetune(
    train: Annotated[Path, typer.Option(help="Labelled rows: .csv, .tsv, .xlsx, .jsonl, .json or .parquet.")],
    task: Annotated[
        Literal["classify", "regress", "entail", "similarity", "choice"],
        typer.Option(help="classify, regress, entail, similarity or choice."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Base: a folder, a shipped model, minilm, or a hub name.",
            show_default="the best of those of this machine",
        ),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help="Rows to measure on; by default cross-validation of few rows, a tenth of many."),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Rows to measure on once, at the end.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the class, the score or the right answer; with target=labels, a comma-separated list "
            "of 0/1 columns."
        ),
    ] = None,
    column: NamedColumns = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training rows.")] = None,
    device: Device = "auto",
    seed: Seed = 1,
    download: Annotated[bool, typer.Option("--download", help="Download the base.")] = False,
    show: Annotated[
        int | None, typer.Option(help="Print N examples as the model sees them, and exit.", min=1, max=MOST_ROWS)
    ] = None,
    limit: Limit = None,
    settings: Settings = None,
    list_keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on labelled rows: a mixture of words and characters, the base's features, and the tuned base.

    headwater finetune --task classify --train reviews.csv --out sentiment
    """
    from headwater.config import option_layers, parse_settings
    from headwater.finetuning import FinetuneConfig

    parsed = parse_settings(settings or [])
    columns = named_columns(column) | {k: v for k, v in (("text", text), ("label", label)) if v is not None}
    several = columns.get("label")
    if isinstance(several, str) and "," in several and parsed.get("target") == "labels":
        columns["label"] = [name.strip() for name in several.split(",")]
    if out is None and show is None:
        raise UsageError("--out is missing", expected="the folder to write")
    chosen = {"task": "classify", "target": "score"} if task == "regress" else {"task": task}
    config = FinetuneConfig.build(
        {**chosen, "recipe": "auto", "seed": seed, "columns": columns},
        *option_layers({"epochs": epochs, "limit": limit, "device": device}),
        parsed,
        source="the command line",
    )
    for path in filter(None, (train, validation, test)):
        require_file(path)
    base = None if model is None else local_model(model, download)
    if show is not None:
        from headwater.finetuning import show_examples

        shown = show_examples(config, model=base, train=train, count=show)
        emit({"examples": [asdict(example) for example in shown]}, as_json=as_json, text=_examples_text(shown))
        return
    from headwater.finetuning import finetune as run

    assert out is not None
    metrics = run(
        config, out, model=base, train=train, validation=validation, test=test, progress=terminal_progress()
    )
    following = (
        f"To label new rows: headwater predict --model {shlex.quote(str(out))} FILE --out predictions.jsonl"
    )
    emit({"out": str(out), **metrics}, as_json=as_json, text="\n".join([*metrics["summary"], following]))


def _examples_text(shown: list[ShownExample]) -> str:
    lines = []
    for example in shown:
        label = "without a label" if example.label is None else example.label
        lines.append(f"row {example.row}: {label}")
        for sequence in example.sequences:
            lines.append(f"  {sequence.text}   ({len(sequence.ids)} tokens)")
        if example.cut:
            lines.append(f"  {example.cut} tokens were cut")
    return "\n".join(lines)
