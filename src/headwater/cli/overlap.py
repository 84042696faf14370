"""`headwater corpus overlap`: how much of a test text occurs in a training text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.console import AsJson, emit, terminal_progress


def overlap(
    train: Annotated[Path, typer.Option(help="Training corpus: a folder or a file.")],
    test: Annotated[list[Path], typer.Option(help="Test text. Repeatable.")],
    own: Annotated[
        list[Path] | None,
        typer.Option(
            "--test-train", help="The test set's own training part, one for each --test, in the same order."
        ),
    ] = None,
    words: Annotated[int, typer.Option(help="Words in an n-gram.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """Print the percentage of test texts' n-grams that occur in a training corpus (GPT-2, table 6)."""
    from headwater.corpus.dedup.overlap import measure_overlap

    found = measure_overlap(train, test, own or [], words=words, progress=terminal_progress())
    emit(found, as_json=as_json, text=_text(found))


def _text(found: dict[str, Any]) -> str:
    width = max(len("test text"), *(len(row["name"]) for row in found["rows"]))
    train_part = f"in {Path(found['train']).name}"
    lines = [f"{'test text'.ljust(width)}  {'n-grams':>11}  {train_part:>20}  {'own training part':>17}"]
    for row in found["rows"]:
        own = "–" if row["own"] is None else f"{row['own']:.2f} %"
        train = f"{row['train']:.2f} %"
        lines.append(f"{row['name'].ljust(width)}  {row['grams']:>11,}  {train:>20}  {own:>17}")
    lines.append(
        f"{found['words']}-grams of lower-cased words; {found['train_grams']:,} in the training text, "
        f"{found['filter_bytes'] / 1e6:.1f} MB; false positives {found['false_positive_rate']:.1e} "
        f"(bound {found['bound']:.0e})"
    )
    return "\n".join(lines)
