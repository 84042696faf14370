"""The results of an experiment: `results.json`, figures, and a page in Markdown and in HTML.

The same folders give the same `results.json`. The commit, the command and the machine are in `made.json` and on
the page.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwater.device import processor_name
from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.report import report
from headwater.storage import Stage, has_manifest, read_manifest, write_json, write_text
from headwater_papers.claims import correct_family
from headwater_papers.claims_section import claims_section
from headwater_papers.experiment import Experiment, Findings
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.figures import save_plot
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import TABLES, markdown
from headwater_papers.published import published, tally
from headwater_papers.scale import Scale, shipped_scale
from headwater_papers.statistics import FAILS, HOLDS, NOTHING, OPEN, RULE, SMALLER, WEAKER

KIND = "reproduction"  # of a folder with the results of an experiment
RESULTS = "results.json"
MADE = "made.json"
PAGE = "README.md"
HTML = "report.html"
_SMALL, _LARGE = 10, 100_000
# Keys of a text's `changes` that results were made with and `corpus build` no longer has. They had its default,
# and the files of these texts are UTF-8, so it reads them as before.
_REMOVED_CHANGES: Mapping[str, Mapping[str, Any]] = {"books": {"any_encoding": False}}


def write_experiment(
    experiment: Experiment, findings: Findings, laboratory: Laboratory, out: Path
) -> dict[str, Any]:
    """Write the folder of one experiment, replacing its earlier results; return the results."""
    scale = laboratory.scale
    config = {
        "experiment": experiment.name,
        "scale": scale.name,
        "seeds": list(scale.seeds),
        "settings": scale.settings(experiment.name, experiment.settings).to_dict(),
    }
    results = {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "section": experiment.section,
        "claim": experiment.claim,
        "scale": scale.name,
        "scale_identity": experiment.identity(scale),
        "seeds": list(scale.seeds),
        "rule": RULE,
        "findings": [finding.to_dict() for finding in correct_family(findings.findings)],
        "rows": [row.to_dict() for row in findings.rows],
        "setup": [list(line) for line in findings.setup],
        "notes": [*findings.notes, *_own_settings(config)],
        "figures": list(findings.figures),
        "paper_tables": list(experiment.paper_tables),
    }
    results = published(results)
    _remove_earlier(out)
    inputs = {name: path for name, path in laboratory.used.items() if has_manifest(path)}
    stage = Stage(out, kind=KIND, config=config, inputs=inputs)
    with stage.write() as work:
        for name, draw in findings.figures.items():
            save_plot(draw, work / f"{name}.png", (".png", ".svg"))
        write_json(work / RESULTS, results)
        command = ["headwater", "reproduce", experiment.name, "--scale", scale.name]
        changed = scale.changed
        for setting in changed or ():
            command += ["--set", setting]
        made = {
            "commit": commit(),
            "machine": machine(),
            "versions": stage.manifest({}, complete=False).versions,
            "command": shlex.join(command),
        }
        made |= {} if changed == [] else {"scale": scale.to_dict()}
        write_json(work / MADE, made)
        write_text(work / PAGE, page(results, made))
    title = f"{experiment.paper}: {experiment.title}"
    report([out], out.with_name(f"{out.name}.html"), title=title, section=claims_section([out]))
    return results


def _own_settings(config: Mapping[str, Any]) -> list[str]:
    shipped = shipped_scale(config["scale"])
    changed = changed_settings(config["experiment"], config["settings"], shipped) if shipped else ""
    return [f"Other settings than those of the scale {config['scale']}: {changed}."] if changed else []


def page(results: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """Return the page of one experiment as Markdown."""
    lines = [f"# {results['paper']}, section {results['section']}: {results['title']}", "", results["claim"], ""]
    lines += fewer_seeds(results)
    lines += [made["remark"], ""] if "remark" in made else []
    if results["findings"]:
        lines += claims_table([results], linked=False)
    for finding in results["findings"]:
        lines += ["", f"**{finding['verdict'].capitalize()}.** {finding['claim']} {finding['sentence']}".rstrip()]
    for name in results["figures"]:
        lines += ["", f"![{name.replace('-', ' ')}]({name}.png)"]
    if lines[-1]:
        lines.append("")
    lines += ["## Numbers", "", *rows_table(results["rows"])]
    if results.get("paper_tables"):
        lines += ["", "## The paper's tables"]
        lines += [line for name in results["paper_tables"] for line in ("", *markdown(TABLES[name]))]
    lines += ["", "## Set-up", "", *(f"- **{name}**: {value}" for name, value in results["setup"])]
    lines += ["", *(f"- {note}" for note in results["notes"])] if results["notes"] else []
    lines += ["", f"The rule: {results['rule']}", "", "## Made with", "", "```sh", made["command"], "```", ""]
    if "scale" in made and " --set " not in made["command"]:
        lines += [f"The scale is not one that comes with Headwater; `{MADE}` has all of it.", ""]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    lines += [f"Commit {made['commit']}; {made['machine']}; {versions}."]
    lines += ["", made["checked"]] if "checked" in made else []
    return "\n".join(lines) + "\n"


def fewer_seeds(results: Mapping[str, Any]) -> list[str]:
    """Return a sentence as Markdown if the run or a claim has fewer seeds than the scale plans."""
    scale, seeds = results["scale"], results["seeds"]
    shipped = shipped_scale(scale)
    planned = max(len(seeds), len(shipped.seeds) if shipped else 0)
    short = []
    if len(seeds) < planned:
        short.append(f"this run has {len(seeds)} of the {planned} seeds of the scale {scale}")
    short += [
        f"“{finding['claim']}” has {finding['noise']['seeds']} of {planned}"
        for finding in results["findings"]
        if finding.get("noise") and finding["noise"]["seeds"] < len(seeds)
    ]
    return _list_paragraph("**Fewer seeds than planned:**", short)


def _list_paragraph(what: str, listed: Sequence[str], separator: str = "; ") -> list[str]:
    """Return `what` and the list as a paragraph of Markdown; no lines if the list is empty."""
    return [f"{what} {separator.join(listed)}.", ""] if listed else []


def claims_table(results: Sequence[Mapping[str, Any]], *, linked: bool) -> list[str]:
    """Return a table of claims as Markdown: claim, the paper's number, the number here, verdict.

    With links, which is the page of all experiments, the reasons why claims say nothing follow.
    """
    lines = ["| claim | paper | here | verdict |", "|---|---|---|---|"]
    empty = []
    for one in results:
        for finding in one["findings"]:
            claim = _cell(finding["claim"])
            if linked:
                claim = f"[{claim}]({one['experiment']}/{PAGE})"
            lines.append(
                f"| {claim} | {_cell(finding['paper'])} | {_cell(finding['here'])} | {finding['verdict']} |"
            )
            if finding["verdict"] == NOTHING:
                empty.append(f"- {claim} {finding['sentence']}")
    if linked and empty:
        lines += ["", "Why claims say nothing:", "", *empty]
    return lines


def counted(findings: Iterable[Mapping[str, Any]]) -> str:
    """Return the sentence that says how many claims have which verdict."""
    count = tally(findings)
    return (
        f"Of {count.total()} claims, {count[HOLDS]} hold here and {count[FAILS]} do not. {count[WEAKER]} are "
        f"weaker than expected, {count[SMALLER]} have an effect too small to matter, and {count[OPEN]} "
        f"cannot be decided at this scale. {count[NOTHING]} cannot be judged: the scores are worse than a "
        "uniform guess, or the change in question cost nothing."
    )


def rows_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of all numbers as Markdown, with intervals and the paper's numbers."""
    lines = ["| setting | measure | here | 95 % interval | seeds | paper | examples | note |", "|---" * 8 + "|"]
    for row in rows:
        interval = "–" if row["low"] is None else f"{_number(row['low'])} to {_number(row['high'])}"
        paper = "" if row["published"] is None else _number(row["published"])
        examples = "" if row["examples"] is None else f"{row['examples']:,}"
        lines.append(
            f"| {_cell(row['setting'])} | {_cell(row['measure'])} | {_number(row['value'])} | {interval} "
            f"| {row['seeds']} | {paper} | {examples} | {_cell(row['note'])} |"
        )
    return lines


def write_index(out: Path, scale: Scale | None = None) -> None:
    """Write the claims of all experiments in `out` on one page, as README.md and report.html."""
    results = write_claims(out, scale)
    folders = [out / one["experiment"] for one in results]
    if folders:
        report(folders, out / HTML, title="The papers, run again", section=claims_section(folders))


def write_claims(out: Path, scale: Scale | None = None) -> list[dict[str, Any]]:
    """Write README.md with the claims of all experiments in `out`; return the results that it shows.

    Results of another configuration than `scale` are left out and named. Results whose experiment had other
    settings than the scale's are named. The scale is by default the one that most results name.
    """
    results = [read_json(path) for path in sorted(out.glob(f"*/{RESULTS}"))]
    if not results:
        return []
    other = _of_another_configuration(results, scale)
    results = [one for one in results if one["experiment"] not in other]
    lines = ["# The papers, run again", ""]
    named = [f"{name} ({what})" for name, what in other.items()]
    lines += _list_paragraph("**Left out, since they are of another configuration than the rest:**", named, ", ")
    lines += _list_paragraph("With fewer seeds than the rest:", _fewer_than_the_rest(results), ", ")
    lines += _list_paragraph("With other settings than the scale's:", _with_other_settings(out, results, scale))
    lines += [counted(one for result in results for one in result["findings"]), ""]
    lines += [*claims_table(results, linked=True), "", f"The rule: {RULE}", ""]
    lines += [f"- [{one['paper']}: {one['title']}]({one['experiment']}/{PAGE})" for one in results]
    write_text(out / PAGE, "\n".join(lines) + "\n")
    return results


def experiments_with_fewer_seeds(out: Path) -> list[str]:
    """Return the experiments in `out` that have fewer seeds than the rest, each as `NAME (1, 2, 3)`."""
    return _fewer_than_the_rest([read_json(path) for path in sorted(out.glob(f"*/{RESULTS}"))])


def _fewer_than_the_rest(results: Sequence[Mapping[str, Any]]) -> list[str]:
    most = max((len(one["seeds"]) for one in results), default=0)
    return [f"{one['experiment']} ({_listed(one['seeds'])})" for one in results if len(one["seeds"]) < most]


def _of_another_configuration(results: Sequence[Mapping[str, Any]], scale: Scale | None) -> dict[str, str]:
    """Return the experiments whose configuration is not that of `scale`, with their configuration.

    The scale is by default the one that most of them name. An experiment may have fewer or more seeds, if those
    that both have are the same.
    """
    name = scale.name if scale else Counter(one["scale"] for one in results).most_common(1)[0][0]
    seeds = list(scale.seeds) if scale else max((one["seeds"] for one in results if one["scale"] == name), key=len)
    reference = scale or shipped_scale(name)
    other = {}
    for one in results:
        described = f"scale {one['scale']}, seeds {_listed(one['seeds'])}"
        common = min(len(one["seeds"]), len(seeds))
        if one["scale"] != name or one["seeds"][:common] != seeds[:common]:
            other[one["experiment"]] = described
        elif reference is not None and not has_configuration(one, reference):
            other[one["experiment"]] = f"{described}, other settings"
    return other


def has_configuration(results: Mapping[str, Any], scale: Scale) -> bool:
    """Return whether results have the models, texts and fine-tuning of `scale`, with seeds of their own."""
    identity = EXPERIMENTS[results["experiment"]].identity
    seeded = scale.model_copy(update={"seeds": tuple(results["seeds"])})
    texts = {
        name: plan.model_copy(update={"changes": {**plan.changes, **_REMOVED_CHANGES.get(name, {})}})
        for name, plan in scale.texts.items()
    }
    return results["scale_identity"] in {identity(seeded), identity(seeded.model_copy(update={"texts": texts}))}


def _with_other_settings(out: Path, results: Sequence[Mapping[str, Any]], scale: Scale | None) -> list[str]:
    """Return the experiments whose settings were not the scale's, each with the settings."""
    other = []
    for one in results:
        page_scale = scale or shipped_scale(one["scale"])
        own = read_manifest(out / one["experiment"]).config.get("settings", {})
        changed = changed_settings(one["experiment"], own, page_scale) if page_scale else ""
        other += [f"{one['experiment']} ({changed})"] if changed else []
    return other


def changed_settings(name: str, own: Mapping[str, Any], scale: Scale) -> str:
    """Return the settings in which an experiment's results differ from the scale: `limit = 100`; "" if none.

    A setting that the results do not record did not exist when they were made, and counts as its default.
    """
    settings = EXPERIMENTS[name].settings
    planned = scale.settings(name, settings).to_dict()
    there = settings.model_construct().to_dict() | dict(own)
    changed = [key for key in sorted({*planned, *there}) if planned.get(key) != there.get(key)]
    return ", ".join(f"{key} = {json.dumps(there.get(key))}" for key in changed)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def commit() -> str:
    """Return the commit of the source, with `changed` for local changes; `unknown` outside its checkout."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=True
        ).stdout

    try:
        git("ls-files", "--error-unmatch", here.name)  # fails inside another project's checkout
        name = git("rev-parse", "--short=12", "HEAD").strip()
        return f"{name}, changed" if git("status", "--porcelain", "--untracked-files=no", ".") else name
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """Return processor, cores and accelerator, without the machine's name."""
    import torch

    device = f", {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores of {processor_name()}{device}, {platform.system()}"


def _remove_earlier(out: Path) -> None:
    """Remove earlier results of an experiment; raise FolderError for a folder with anything else."""
    if not out.exists() or not any(out.iterdir()):
        return
    if not has_manifest(out) or read_manifest(out).kind != KIND:
        raise FolderError(f"{out} contains something other than results", repair="Choose another --out")
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as trash:
        out.rename(Path(trash, out.name))  # so that a kill leaves all of them or none


def _number(value: float) -> str:
    if abs(value) >= _LARGE:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < _SMALL else f"{value:.2f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
