"""Pages and tables of results: what is published, marked, left out and named."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.report import report
from headwater.storage import Stage, open_folder, write_json
from headwater_papers.claims import PaperClaim, judge
from headwater_papers.claims_section import claims_section
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.page import (
    CHANGES,
    KIND,
    VERSION,
    claims_table,
    fewer_seeds,
    outdated,
    says_nothing,
    write_index,
)
from headwater_papers.paper_tables import TABLES, markdown
from headwater_papers.scale import load_scale
from headwater_papers.statistics import (
    HOLDS,
)

HOSTILE = "<script>alert(1)</script>"


def claim_of(text: str) -> PaperClaim:
    return PaperClaim(claim=text, paper="", holds="It holds.", fails="It fails.", undecided="It is open.")


def test_fewer_seeds_than_planned_are_reported() -> None:
    finding = judge(claim_of("A claim."), [1.0, 1.1, 1.2]).to_dict()
    own = {"scale": "own", "findings": [finding]}
    assert "“A claim.” has 3 of 5" in fewer_seeds(own | {"seeds": [1, 2, 3, 4, 5]})[0]
    assert fewer_seeds(own | {"seeds": [1, 2, 3]}) == []
    planned = list(load_scale("mini").seeds)
    told = fewer_seeds({"scale": "mini", "seeds": planned[:3], "findings": [finding]})[0]
    assert f"this run has 3 of the {len(planned)} seeds of the scale mini" in told
    assert fewer_seeds({"scale": "mini", "seeds": planned, "findings": []}) == []


def test_a_model_changes_only_the_experiments_that_use_it() -> None:
    mini = load_scale("mini")
    changed = load_scale("mini", {"models": {"gpt2-a": {"recipe": {"steps": 7}}}})
    differ = {name for name, one in EXPERIMENTS.items() if one.identity(mini) != one.identity(changed)}
    assert differ == {name for name, one in EXPERIMENTS.items() if "gpt2-" in one.models}
    assert "gpt2_zero_shot" in differ
    assert "gpt1_tables" not in differ


def test_results_of_other_configurations_are_not_in_the_index(tmp_path: Path) -> None:
    results_of = {"gpt1_tables": [1, 2, 3], "gpt1_perplexity": [1, 2, 3], "gpt1_layers": [1]}
    for name, seeds in (results_of | {"gpt1_updates": [7, 8, 9]}).items():
        claim = {"claim": f"claim of {name}", "paper": "1", "here": "2", "verdict": HOLDS, "sentence": ""}
        results = {
            "experiment": name,
            "version": VERSION,
            "paper": "GPT-1",
            "title": name,
            "scale": "mini",
            "scale_identity": EXPERIMENTS[name].identity(load_scale("mini", {"seeds": seeds})),
            "seeds": seeds,
            "findings": [claim],
            **dict.fromkeys(("section", "claim", "rule"), ""),
            **dict.fromkeys(("rows", "setup", "notes", "figures"), ()),
        }
        planned = load_scale("mini").experiments.get(name, {})
        config = {"settings": {"windows": 7} if name == "gpt1_perplexity" else planned}
        with Stage(tmp_path / name, kind=KIND, config=config, inputs={}).write() as work:
            write_json(work / "results.json", results)
            write_json(work / "made.json", {"commit": "", "machine": "", "versions": {}, "command": ""})
    write_index(tmp_path, load_scale("mini", {"seeds": [1]}))
    assert "claim of gpt1_tables" in (tmp_path / "README.md").read_text(encoding="utf-8")  # more seeds than asked
    write_index(tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "claim of gpt1_tables" in page
    assert "claim of gpt1_updates" not in page
    assert "another configuration than the rest:** gpt1_updates (scale mini, seeds 7, 8, 9)" in page
    assert "claim of gpt1_layers" in page
    assert "fewer seeds than the rest: gpt1_layers (1)" in page
    assert "With other settings than the scale's: gpt1_perplexity (windows = 7).\n" in page
    write_index(tmp_path, load_scale("mini", {"experiments": {"gpt1_perplexity": {"windows": 7}}}))
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "gpt1_perplexity (windows" not in page


def test_published_results_are_whole_and_name_no_local_folder() -> None:
    published = sorted(
        path.parent for path in (Path(__file__).parents[2] / "papers/results").glob("*/results.json")
    )
    assert published
    for folder in published:
        command = open_folder(folder, KIND).command
        assert command == read_json(folder / "made.json")["command"]
        assert "--data" not in command
        assert "--out" not in command
    page = (Path(__file__).parents[2] / "papers/results/report.html").read_text(encoding="utf-8")
    assert re.findall(r"<strong>/[^<]*|(?:from |, )/[\w./-]+", page) == []  # names of folders in the lineage


def test_only_results_of_a_scale_that_ships_are_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Path(__file__).parents[1] / "tools"
    spec = importlib.util.spec_from_file_location("publish_results", tools / "publish_results.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    shipped = load_scale("mini")
    few = load_scale("mini", {"seeds": shipped.seeds[:3]})
    limit = {"experiments": dict(shipped.experiments) | {"gpt2_zero_shot": {"limit": 3}}}
    for scale, reason in (
        (shipped, ""),
        (few, ""),
        (load_scale("mini", {"seeds": [7, 8, 9]}), "begins with others"),
        (shipped.model_copy(update={"name": "own"}), "does not come with Headwater"),
        (shipped.model_copy(update={"texts": {}}), "other settings"),
        (shipped.model_copy(update=limit), "other settings"),
    ):
        folder = tmp_path / "out" / "gpt2_zero_shot"
        folder.mkdir(parents=True, exist_ok=True)
        identity = EXPERIMENTS[folder.name].identity(scale)
        results = {"experiment": folder.name, "scale": scale.name, "scale_identity": identity}
        write_json(folder / "results.json", results | {"seeds": list(scale.seeds)})
        write_json(folder / "made.json", {} if scale.changed == [] else {"scale": scale.to_dict()})
        assert (reason in tool.foreign(folder)) if reason else (tool.foreign(folder) == "")
    assert tool.main([str(tmp_path / "out"), str(tmp_path / "docs")]) == 1
    assert "Nothing was copied" in capsys.readouterr().out
    assert not (tmp_path / "docs").exists()


def test_a_claim_about_useless_scores_is_marked() -> None:
    finding = {"paper": "–", "verdict": HOLDS, "claim": "LAMBADA perplexity falls."}
    useless = finding | {"here": "1.662e+07 → 8,895,000 → 6.045e+06; least certain step 0.1 nats"}
    useful = finding | {"here": "1,090,302 → 120.5"}
    results = [{"experiment": "one", "findings": [useless, useful]}]
    table = claims_table(results, linked=True)
    assert sum(line.endswith("| holds |") for line in table) == 1
    assert "6,045,000, is above that of a uniform guess" in table[-1]
    assert any(line.endswith("| holds, but says nothing |") for line in claims_table(results, linked=False))
    assert says_nothing(finding | {"here": "0 → 0 → 0"}) == "Every model has 0."
    assert not says_nothing(finding | {"here": "91.7 (85.7 to 97.6)"})


def test_the_report_shows_claims_with_the_papers_numbers(tmp_path: Path) -> None:
    finding = {"claim": f"It helps {HOSTILE}", "paper": "74.7", "here": "61.2", "verdict": "does not hold"}
    row = {"setting": "sst2", "measure": "accuracy", "value": 0.612, "low": 0.6, "high": 0.62, "seeds": 3}
    results = {
        "experiment": "gpt1_x",
        "title": "Ablations",
        "paper": "GPT-1",
        "section": "5",
        "scale": "mini",
        "claim": "Everything helps.",
        "rule": "By the interval.",
        "findings": [
            finding | {"sentence": "It does not."},
            {"claim": "It falls.", "paper": "9", "here": "1e6 → 1e5", "verdict": "holds", "sentence": "It does."}
            | {"empty": "Worse than a guess."},
        ],
        "rows": [row | {"published": 0.747, "examples": 100, "note": HOSTILE}],
        "setup": [["text", "novels"]],
        "notes": [],
        "figures": ["table-5"],
    }
    made = {"commit": "abc", "machine": "2 cores", "command": "headwater reproduce gpt1_x"}
    folder = tmp_path / "gpt1_x"
    with Stage(folder, kind=KIND, config={}, inputs={}).write() as work:
        write_json(work / "results.json", results)
        write_json(work / "made.json", made)
        (work / "table-5.svg").write_text("<svg/>")
    page = report([folder], tmp_path / "page.html", section=claims_section([folder])).read_text()
    assert '<span class="verdict open">holds, but says nothing</span>' in page
    assert "Worse than a guess." in page
    assert "It does." not in page
    assert HOSTILE not in page
    for shown in ("74.7", "61.2", "does not hold", "0.747", "data:image/svg+xml;base64,"):
        assert shown in page
    assert 'href="#provenance"' in page
    assert 'id="provenance"' in page
    with pytest.raises(FolderError, match="another format"):
        (folder / "results.json").write_text("{}")
        claims_section([folder])


def test_a_page_of_earlier_numbers_names_what_has_changed() -> None:
    assert outdated({"experiment": "gpt1_tables", "version": VERSION}) == []
    assert outdated({"experiment": "gpt2_samples", "version": 4}) == []
    assert "SciTail" in outdated({"experiment": "gpt1_tables", "version": 4})[0]
    assert "constant answer" in outdated({"experiment": "gpt1_tables", "version": 5})[0]
    for changes in CHANGES.values():
        assert set(changes) <= set(EXPERIMENTS)


def test_a_page_shows_the_papers_tables_with_the_earlier_systems() -> None:
    for experiment in EXPERIMENTS.values():
        assert set(experiment.paper_tables) <= set(TABLES)
    assert "BiAttention MRU (9×)" in "".join(markdown(TABLES[EXPERIMENTS["gpt1_tables"].paper_tables[1]]))
