"""Copy the results of `headwater reproduce` into the documentation: pages, figures and numbers, but no models.

python papers/tools/publish_results.py reproduction papers/results
python papers/tools/publish_results.py papers/results             write the pages there again from their numbers

README.md and docs/models.md then show some of the new claims and the new scaling law, the pages of docs/reading
the results of what they explain, and papers/results/README.ko.md all of them in Korean.

Only results of a scale that comes with Headwater are copied, or of its first seeds: results of other settings
cannot be compared with the published ones.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
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
PUBLISHED = {".json", ".md", ".png", ".svg"}


def main(arguments: list[str]) -> int:
    """Replace the experiments in the second folder by those in the first. Its other experiments stay."""
    if len(arguments) == 1:
        return write_pages(Path(arguments[0]))
    if len(arguments) != 2:
        print(__doc__)
        return 2
    source, target = map(Path, arguments)
    found = sorted(path.parent for path in source.glob("*/results.json"))
    if not found:
        print(f"{source} has no results")
        return 1
    refused = {folder.name: reason for folder in found if (reason := foreign(folder))}
    if refused:
        for name, reason in refused.items():
            print(f"{name} is not published: it has {reason}")
        print(f"Nothing was copied. Remove these from {source}, or run them again.")
        return 1
    for folder in found:
        shutil.rmtree(target / folder.name, ignore_errors=True)
        (target / folder.name).mkdir(parents=True)
        for path in folder.iterdir():
            if path.suffix in PUBLISHED:
                shutil.copyfile(path, target / folder.name / path.name)
    print(f"{len(found)} experiments in {target}")
    return write_pages(target)


def foreign(folder: Path) -> str:
    """Return how the configuration of results differs from the scale that they name; "" if it does not."""
    from headwater_papers.experiments import EXPERIMENTS
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
    identity = EXPERIMENTS[experiment].identity(load_scale(name, {"seeds": seeds}))
    if results.get("scale_identity") != identity or not settings:
        return f"other settings than the scale {name}"
    return ""


def write_pages(folder: Path) -> int:
    """Write each page again from its numbers, so that it says what changed since they were measured.

    Claims get the words that claims.toml has now for the paper, and those that say nothing are marked. The
    manifest gets size and hash of what is new, and the command without the folders of the machine. Its identity
    stays that of the original results.
    """
    from headwater.config import read_toml
    from headwater.reading import sha256_of
    from headwater.storage import Manifest, read_manifest, write_json, write_text
    from headwater_papers.claims import CLAIMS
    from headwater_papers.gpt1_tables import BELOW, TABLES, TABLES_2_TO_4, below_constant
    from headwater_papers.page import PAGE, marked, page, write_index

    remarks = read_toml(Path(__file__).with_name("remarks.toml"))
    papers = {one.claim: one.paper for one in CLAIMS.values() if "{" not in one.claim + one.paper}

    for path in sorted(folder.glob("*/results.json")):
        place = path.parent
        results, made = (json.loads((place / name).read_text("utf-8")) for name in ("results.json", "made.json"))
        findings = [one | {"paper": papers.get(one["claim"], one["paper"])} for one in results["findings"]]
        if results["experiment"] == TABLES_2_TO_4.name:  # results from before it named these sets
            findings = [
                one | {"here": one["here"].partition(BELOW)[0] + below_constant(table, results["rows"])}
                for one, table in zip(findings, TABLES, strict=True)
            ]
        results |= {"findings": marked(findings)}
        made = made | {"remark": remarks[place.name]} if place.name in remarks else made
        write_text(place / PAGE, page(results, made))
        write_json(path, results)
        write_json(place / "made.json", made)
        manifest = read_manifest(place).to_dict() | {"command": made["command"]}
        for new in (place / PAGE, path, place / "made.json"):
            manifest["files"][new.name] = {"bytes": new.stat().st_size, "sha256": sha256_of(new)}
        write_json(place / "headwater.json", Manifest.model_validate(manifest).sealed().to_dict())
    write_index(folder)
    if folder.resolve() == RESULTS:
        for path, text in quoting_pages().items():
            path.write_text(text, encoding="utf-8")
    return 0


def quoting_pages() -> dict[Path, str]:
    """Return the pages that quote results, with the current claims and the current scaling law."""
    import quoted_results

    published = quoted_results.findings()
    verdicts = Counter(one["verdict"] for one in published)
    table = [
        f"Of {len(published)} claims, {verdicts['holds']} hold here and {verdicts['does not hold']} do not; the "
        "others are weaker than expected, or too uncertain to decide.",
        "",
        "| claim | here | what it means |",
        "|---|---|---|",
    ]
    for one in published:
        if one["name"] in SHOWN and one["verdict"] == "holds":
            link = f"papers/results/{one['experiment']}/README.md"
            here = one["here"].partition(" over ")[0]
            table.append(f"| [{one['claim']}]({link}) | {here} | {one['sentence']} |")
    law = _LAW.findall((RESULTS / "scaling" / "README.md").read_text("utf-8"))
    pages = quoted_results.pages()
    korean = [
        f"주장 {len(published)}개 가운데 {verdicts['holds']}개는 성립하고 "
        f"{verdicts['does not hold']}개는 성립하지 않습니다. "
        "나머지는 기대한 효과보다 약하거나, 이 규모로는 판단할 수 없습니다."
    ]
    quoted = (("README.md", "claims", table), ("README.ko.md", "claims", korean), ("docs/models.md", "law", law))
    for name, mark, lines in quoted:
        start, _, rest = (ROOT / name).read_text("utf-8").partition(f"<!-- {mark} -->")
        content = "\n".join([f"<!-- {mark} -->", *lines, f"<!-- /{mark} -->"])
        pages[ROOT / name] = start + content + rest.partition(f"<!-- /{mark} -->")[2]
    return pages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
