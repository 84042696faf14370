"""`headwater quickstart`: the whole flow, with what to try next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, Device, Encoding, Seed, emit, refuse_unused, terminal_progress


def quickstart(
    context: typer.Context,
    text: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]…", help="Your own files or folders, in the formats of `corpus build`."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Minutes of pre-training.")] = 4.0,
    out: Annotated[Path, typer.Option(help="Folder for everything.")] = Path("quickstart"),
    text_field: Annotated[str, typer.Option(help="Field or column with the text in these files.")] = "text",
    encoding: Encoding = "",
    device: Device = "auto",
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Train a GPT-2 on local text, measure what it can do, and write a report.

    Without a FILE, the text is the documentation of the installed Python packages. Run the same command again to
    resume after an interruption.
    """
    if not text:
        refuse_unused(context, "quickstart without a FILE", "text_field", "encoding")
    from headwater.quickstart import quickstart as run

    result = run(
        out,
        minutes=minutes,
        text=text or (),
        text_field=text_field,
        encoding=encoding,
        seed=seed,
        device=device,
        progress=terminal_progress(),
    )
    # Without the line below a heading.
    words = [word for word in result.prompt.split() if any(map(str.isalnum, word))]
    prompt = shlex.quote(" ".join(words[:3] or result.prompt.split()[:3]))
    model = shlex.quote(str(result.model))
    next_steps = (
        f"The report: {result.report}\n\n"
        "Try next:\n"
        f"  headwater generate {prompt} --model {model}\n"
        "  headwater quickstart YOUR_TEXT_FOLDER --minutes 20 --out my-model\n"
        f"  headwater lineage {model}"
    )
    paths = {"out": str(result.out), "model": str(result.model), "report": str(result.report)}
    emit(paths | result.figures, as_json=as_json, text=next_steps)
