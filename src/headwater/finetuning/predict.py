"""`headwater predict` as a function: read a table, write one line a row, in constant memory."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, tee
from pathlib import Path
from typing import IO, Any

from headwater.device import choose_device
from headwater.display import counted
from headwater.errors import UsageError
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.results.predictions import FORMATS, prediction_table
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.read import open_task_table, task_rows
from headwater.finetuning.rows.row import Raw
from headwater.reading import OpenTable, text_encoding, unpacked_suffix
from headwater.storage import SILENT, OutputFile, Progress

# The name of standard input and output.
STREAM = Path("-")

# What Excel and its like take for a formula; numbers are none.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,]+$)")


def predict_file(
    model: Path,
    file: Path,
    out: Path,
    *,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    encoding: str = "",
    bom: bool = False,
    threshold: float = 0.0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Label the rows of `file` and write `out` atomically.

    Each row keeps its columns, in order, followed by `prediction` and the probability of each class: one column a
    class in .csv, .tsv and .parquet, `probabilities` in .jsonl. The probabilities of a choice, whose rows may
    have different numbers of answers, share one column, separated by spaces. A row without text gets an empty
    prediction. An added column gets an underscore if the file already has its name. `columns` names those of
    `file` that differ from the training file's. `encoding`: of `file`, if it is not UTF-8. `bom`: begin .csv and
    .tsv with a byte-order mark, by which Excel knows UTF-8.

    Path("-") is standard input, whose format is told by its first bytes, or standard output, which is CSV for CSV
    and else JSON Lines.

    threshold: a row whose most probable class or answer is less probable gets an empty prediction.

    Returns {"out", "rows", "empty"}, with a threshold "unsure", the rows below it, and, if the file has labels of
    a class or choice, {"labelled", "accuracy"} of the rows with a prediction.
    Raises UsageError for an `out` that has another extension or is `file`, DataError for rows, FolderError for
    models, and for an `out` that was not predicted from the same rows, model and options.
    """
    if out != STREAM and out.suffix.lower() not in FORMATS:
        raise UsageError(f"--out {out} has an unknown extension", expected=f"{', '.join(FORMATS)}, or -")
    if STREAM not in (file, out) and out.exists() and file.exists() and out.samefile(file):
        raise UsageError(f"--out {out} is the file to read", repair="Choose another --out")
    if file == STREAM:
        with _stored_input() as stored:
            return predict_file(
                model,
                stored,
                out,
                columns=columns,
                limit=limit,
                encoding=encoding,
                bom=bom,
                threshold=threshold,
                device=device,
                progress=progress,
            )
    form = out.suffix.lower() if out != STREAM else ".csv" if unpacked_suffix(file) == ".csv" else ".jsonl"
    if bom and form not in {".csv", ".tsv"}:
        raise UsageError(f"a byte-order mark does not belong into {form}", expected=".csv or .tsv")
    chosen_device = choose_device(device, training=False)
    fine_tuned = FineTuned.load(model, device=chosen_device)
    if fine_tuned.labels.target == "labels" and isinstance(several := (columns or {}).get("label"), str):
        names = [name.strip() for name in several.split(",")]  # as in `finetune --label a,b`
        columns = {**(columns or {}), "label": names if len(names) > 1 else several}
    named = Columns.build(columns or {}, source="--column")
    fine_tuned = fine_tuned.for_task("entail" if named.premise or named.hypothesis else fine_tuned.task)
    encoding = text_encoding(encoding) if encoding else ""

    def opened(progress: Progress = SILENT) -> tuple[Columns, OpenTable, list[str]]:
        return open_task_table(
            file,
            fine_tuned.task,
            named,
            trained=fine_tuned.columns,
            need_label=False,
            limit=limit,
            encoding=encoding,
            progress=progress,
        )

    chosen, _, available = opened(progress)
    settings: dict[str, Any] = {"columns": dict(columns or {}), "limit": limit}
    settings |= ({"encoding": encoding} if encoding else {}) | ({"bom": bom} if bom else {})
    settings |= {"threshold": threshold} if threshold else {}
    if threshold and fine_tuned.labels.target not in ("class", "answer"):
        raise UsageError("a threshold needs a model of classes or choices", repair="Leave --threshold out")
    output = OutputFile(out, kind="predictions", config=settings, inputs={"model": model, "rows": file})
    if out != STREAM:
        output.require_own()

    def read() -> Iterator[Raw]:
        rows = task_rows(islice(opened()[1].rows, limit), str(file), fine_tuned.task, chosen, keep=True)
        return iter(fine_tuned.as_read(rows))

    table = prediction_table(form, fine_tuned, available, bom=bom)
    table.check(read)
    rows, again = tee(read())
    empty: list[int] = []
    done = labelled = right = shortened = unsure = 0
    progress.start("Predicting", unit="rows")
    with _standard_output() if out == STREAM else output.write() as handle:
        table.begin(handle)
        for prediction, row in zip(fine_tuned.predict(rows), again, strict=True):
            if prediction.label is not None and max(prediction.probabilities.values(), default=1) < threshold:
                prediction = replace(prediction, label=None)
                unsure += 1
            elif prediction.label is None:
                empty.append(row.row)
            table.add(row, prediction)
            done += 1
            shortened += prediction.cut > 0
            if prediction.label is not None and row.label is not None and fine_tuned.labels.target != "score":
                labelled += 1
                right += fine_tuned.labels.matches(row, prediction.label)
            progress.advance(done)
        table.end()
    progress.finish(counted(done, "row"))
    if shortened:
        progress.note(f"shortened {counted(shortened, 'row')} that did not fit the model's context")
    formulas = [name for name in fine_tuned.labels.names if _FORMULA.match(name)]
    if formulas and form in {".csv", ".tsv"}:
        progress.note(f"Warning: a spreadsheet runs the label {formulas[0]!r} as a formula: import {out} as text")
    summary: dict[str, Any] = {"out": str(out), "rows": done, "empty": len(empty)}
    if empty:
        shown = ", ".join(f"{number:,}" for number in empty[:5]) + (", …" if len(empty) > 5 else "")
        progress.note(f"Rows without text, which get an empty prediction ({len(empty):,}): {shown}")
    if threshold:
        summary["unsure"] = unsure
    if labelled:
        summary |= {"labelled": labelled, "accuracy": right / labelled}
    return summary


@contextmanager
def _stored_input() -> Iterator[Path]:
    """Yield standard input as a temporary file, named for the format that its first bytes have."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        with path.open("wb") as handle:
            shutil.copyfileobj(sys.stdin.buffer, handle)
        with path.open("rb") as handle:
            start = handle.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith((b"{", b"[")):
            suffix = ".json"
        else:
            suffix = {b"PAR1": ".parquet", b"PK\x03\x04": ".xlsx"}.get(start[:4], ".csv")
        yield path.rename(path.with_suffix(suffix))


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
