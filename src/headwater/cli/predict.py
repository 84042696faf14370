"""`headwater predict`: label new rows with a fine-tuned model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.console import (
    AsJson,
    Device,
    Encoding,
    Limit,
    NamedColumns,
    emit,
    named_columns,
    require_file,
    terminal_progress,
    warn_if_shadowed,
)
from headwater.display import counted


def predict(
    file: Annotated[
        Path,
        typer.Argument(help="Rows to label: .csv, .tsv, .xlsx, .jsonl, .json or .parquet."),
    ],
    model: Annotated[Path, typer.Option(help="Folder that `headwater finetune` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write: .jsonl or .csv.")],
    columns: NamedColumns = None,
    encoding: Encoding = "",
    bom: Annotated[
        bool, typer.Option("--bom", help="Begin .csv with a byte-order mark, as Excel expects.")
    ] = False,
    threshold: Annotated[
        float, typer.Option(help="Leave the prediction empty below this probability.", min=0, max=1)
    ] = 0.0,
    device: Device = "auto",
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Label rows, with the probability of every class. Memory does not grow with the number of rows.

    headwater predict --model sentiment new.csv --out predictions.jsonl
    """
    warn_if_shadowed(model)
    require_file(file)
    from headwater.finetuning import predict_file

    summary = predict_file(
        model,
        file,
        out,
        columns=named_columns(columns),
        limit=limit,
        encoding=encoding,
        bom=bom,
        threshold=threshold,
        device=device,
        progress=terminal_progress(),
    )
    emit(summary, as_json=as_json, text=_summary_text(summary, out))


def _summary_text(summary: Mapping[str, Any], out: Path) -> str:
    """Return how many rows were labelled and, if they have labels, how well."""
    without = summary["empty"] + summary.get("unsure", 0)
    labelled = f"{summary['rows'] - without:,} of {counted(summary['rows'], 'row')}"
    lines = [f"{labelled if without else counted(summary['rows'], 'row')} labelled: {out}"]
    if "unsure" in summary:
        lines.append(f"{counted(summary['unsure'], 'row')} below the threshold, without a prediction")
    for key in ("accuracy", "mean_absolute_error"):
        if key in summary:
            named = key.replace("_", " ")
            value = f"{summary[key]:{'.3f' if key == 'accuracy' else '.6g'}}"
            lines.append(
                f"{named} {value} on the {summary['labelled']:,} rows with prediction and label; too good if "
                "the model learned from them"
            )
    return "\n".join(lines)
