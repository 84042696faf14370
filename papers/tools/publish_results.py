"""Copy the results of `headwater reproduce` into the documentation: pages, figures and numbers, but no models.

python papers/tools/publish_results.py reproduction papers/results
python papers/tools/publish_results.py papers/results             write the pages there again from their numbers

README.md and docs/models.md then show some of the new claims and the new scaling law, the pages of docs/reading
the results of what they explain, and papers/results/README.ko.md all of them in Korean. `published` decides the
numbers' form and the verdicts for every one of these pages.

Only results of a scale that comes with Headwater are copied, or of its first seeds: results of other settings
cannot be compared with the published ones. When the protocol of an experiment changes, run it again or remove its
results.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "papers" / "results"
# The claims that README.md shows if they hold, by their names in claims.toml.
SHOWN = (
    "gpt1_perplexity.lstm",
    "gpt1_layers.all",
    "gpt2_zero_shot.bits",
    "gpt2_shuffled.costs",
    "gpt2_memorisation.none",
)
_LAW = re.compile(r"^- (?:L\(N, D\) = |[^:]+ operations\): N = ).*$", re.M)
PUBLISHED = {".json", ".md", ".png"}


def main(arguments: list[str]) -> int:
    """Replace the experiments in the second folder by those in the first. Its other experiments stay."""
    if len(arguments) == 1:
        return write_pages(Path(arguments[0]))
    if len(arguments) != 2:
        print(__doc__)
        return 2
    source, target = map(Path, arguments)
    folders = sorted(path.parent for path in source.glob("*/results.json"))
    if not folders:
        print(f"{source} has no results")
        return 1
    refused = {folder.name: reason for folder in folders if (reason := foreign(folder))}
    if refused:
        for name, reason in refused.items():
            print(f"{name} is not published: it has {reason}")
        print(f"Nothing was copied. Remove these from {source}, or run them again.")
        return 1
    for folder in folders:
        shutil.rmtree(target / folder.name, ignore_errors=True)
        (target / folder.name).mkdir(parents=True)
        for path in folder.iterdir():
            if path.suffix in PUBLISHED:
                shutil.copyfile(path, target / folder.name / path.name)
    print(f"{len(folders)} experiments in {target}")
    return write_pages(target)


def foreign(folder: Path) -> str:
    """Return how the configuration of results differs from the scale that they name; "" if it does not."""
    from headwater_papers.page import has_configuration
    from headwater_papers.scale import Scale, load_scale, scale_names

    results, made = (json.loads((folder / name).read_text("utf-8")) for name in ("results.json", "made.json"))
    name, experiment = results["scale"], results["experiment"]
    if name not in scale_names():
        return f"the scale {name}, which does not come with Headwater"
    shipped = load_scale(name)
    seeds = tuple(results["seeds"])
    if seeds != shipped.seeds[: len(seeds)]:
        return f"seeds {', '.join(map(str, seeds))}, and the scale {name} begins with others"
    own = Scale.build(made["scale"]) if "scale" in made else shipped
    settings = own.experiments.get(experiment) == shipped.experiments.get(experiment)
    if not has_configuration(results, shipped) or not settings:
        return f"other settings than the scale {name}"
    return ""


def write_pages(folder: Path) -> int:
    """Write each page again from its numbers, with the wording and the verdicts of today.

    The manifest gets size and hash of what is new, and the command without the folders of the machine. Its
    identity stays that of the original results.
    """
    from headwater.config import read_toml
    from headwater.reading import sha256_of
    from headwater.storage import Manifest, read_manifest, write_json, write_text
    from headwater_papers.page import PAGE, page, write_claims
    from headwater_papers.published import published

    remarks = read_toml(Path(__file__).with_name("remarks.toml"))
    for path in sorted(folder.glob("*/results.json")):
        experiment = path.parent
        results, made = (
            json.loads((experiment / name).read_text("utf-8")) for name in ("results.json", "made.json")
        )
        results = published(results)
        made.pop("remark", None)
        made |= {"remark": remarks[experiment.name]} if experiment.name in remarks else {}
        write_text(experiment / PAGE, page(results, made))
        write_json(path, results)
        write_json(experiment / "made.json", made)
        manifest = read_manifest(experiment).to_dict() | {"command": made["command"]}
        manifest["files"] = {
            name: {"bytes": (experiment / name).stat().st_size, "sha256": sha256_of(experiment / name)}
            for name in manifest["files"]
            if (experiment / name).exists()
        }
        write_json(experiment / "headwater.json", Manifest.model_validate(manifest).sealed().to_dict())
    write_claims(folder)
    if folder.resolve() == RESULTS:
        for path, text in quoting_pages().items():
            path.write_text(text, encoding="utf-8")
    return 0


def quoting_pages() -> dict[Path, str]:
    """Return the pages that quote results, with the current claims and the current scaling law."""
    import quoted_results

    from headwater_papers.page import counted

    findings = quoted_results.findings()
    table = [counted(findings), "", "| claim | here |", "|---|---|"]
    for finding in findings:
        if finding["name"] in SHOWN and finding["verdict"] == "holds":
            link = f"papers/results/{finding['experiment']}/README.md"
            here = finding["here"].partition(" over ")[0]
            table.append(f"| [{finding['claim']}]({link}) | {here} |")
    law = _LAW.findall((RESULTS / "scaling" / "README.md").read_text("utf-8"))
    pages = quoted_results.pages()
    quoted = (
        ("README.md", "claims", table),
        ("README.ko.md", "claims", [quoted_results.counted_in_korean(findings)]),
        ("docs/models.md", "law", law),
    )
    for name, mark, lines in quoted:
        start, marked, rest = (ROOT / name).read_text("utf-8").partition(f"<!-- {mark} -->")
        if marked:
            content = "\n".join([f"<!-- {mark} -->", *lines, f"<!-- /{mark} -->"])
            pages[ROOT / name] = start + content + rest.partition(f"<!-- /{mark} -->")[2]
    return pages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
