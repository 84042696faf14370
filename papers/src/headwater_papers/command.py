"""`headwater reproduce`: run the papers' experiments again at a scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import AsJson, Device, Settings, emit, keys_option, terminal_progress

KEYS = keys_option("headwater_papers.scale:Scale")


def reproduce(
    experiments: Annotated[
        list[str] | None, typer.Argument(metavar="EXPERIMENT…", help="Names of experiments, or gpt1, gpt2, all.")
    ] = None,
    scale: Annotated[str, typer.Option(help="mini, small, paper, or a TOML file.")] = "mini",
    data: Annotated[Path | None, typer.Option(help="Folder of training texts and official sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything.")] = Path("reproduction"),
    device: Device = "auto",
    list_: Annotated[bool, typer.Option("--list", help="List the experiments, and exit.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what decides each claim and what it costs, and exit.")
    ] = False,
    pilot: Annotated[
        Path | None, typer.Option(help="Folder of an earlier run whose noise --plan uses; by default --out.")
    ] = None,
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Run experiments of the two papers and report which claims hold at this scale.

    Each writes OUT/EXPERIMENT with results.json, figures and a page; shared models are trained once. Run the same
    command again to resume after an interruption.
    """
    from headwater.config import parse_settings
    from headwater.errors import UsageError
    from headwater.storage import data_folder
    from headwater_papers.experiments import EXPERIMENTS
    from headwater_papers.reproduction import choose
    from headwater_papers.scale import load_scale

    if list_:
        listed = [
            {"experiment": e.name, "paper": e.paper, "section": e.section, "title": e.title, "claim": e.claim}
            for e in EXPERIMENTS.values()
        ]
        width = max(map(len, EXPERIMENTS))
        lines = [f"{e.name.ljust(width)}  {e.paper}, section {e.section}: {e.title}" for e in EXPERIMENTS.values()]
        emit({"experiments": listed}, as_json=as_json, text="\n".join(lines))
        return
    if not experiments:
        raise UsageError("no experiment was given", expected="names, or all", repair="headwater reproduce --list")
    choose(experiments)  # raises for a name that is unknown, before the data is asked for
    chosen_scale = load_scale(scale, parse_settings(settings or []))
    if plan:
        from headwater_papers.plan import plan_of

        plans, lines = plan_of(experiments, chosen_scale, pilot or out, required=pilot is not None)
        emit({"plans": plans}, as_json=as_json, text="\n".join(lines))
        return
    if pilot is not None:
        raise UsageError("--pilot is for --plan", repair=f"Add --plan, or leave --pilot {pilot} out")
    folder = data or data_folder()
    if folder is None or not folder.is_dir():
        raise UsageError("reproduce needs the folder of texts and sets", repair="Give it with --data DIR")
    from headwater_papers import reproduce as run

    outcome = run(
        experiments,
        chosen_scale,
        folder,
        out,
        device=device,
        progress=terminal_progress(),
    )
    lines = [f"{name} was left out: it {why}" for name, why in outcome.left_out.items()]
    for result in outcome.results.values():
        lines += [f"{f['claim']} Paper {f['paper']}; here {f['here']}: {f['verdict']}" for f in result["findings"]]
    lines.append(f"All results: {out / 'report.html'}")
    plain = {"out": str(out), "results": outcome.results, "left_out": outcome.left_out}
    emit(plain, as_json=as_json, text="\n".join(lines))
