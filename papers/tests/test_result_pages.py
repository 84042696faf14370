"""Pages and tables of results: what is published, marked, left out and named."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import pytest
from scipy.stats import binomtest

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.report import report
from headwater.storage import Stage, open_folder, write_json
from headwater_papers.claims import PaperClaim, judge
from headwater_papers.claims_section import claims_section
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.page import KIND, claims_table, fewer_seeds, write_index
from headwater_papers.paper_tables import TABLES, markdown
from headwater_papers.published import published, tally, wilson
from headwater_papers.scale import load_scale
from headwater_papers.statistics import HOLDS, NORMAL, NOTHING, SMALLER

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
        assert (
            re.findall(r"(?<![\w.])/(?:home|root|tmp|work)/", (folder / "headwater.json").read_text("utf-8")) == []
        )


def test_only_results_of_a_scale_that_ships_are_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Path(__file__).parents[1] / "tools"
    spec = importlib.util.spec_from_file_location("publish_results", tools / "publish_results.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for path in (tools.parent / "results").glob("*/results.json"):
        assert tool.foreign(path.parent) == ""
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


def result_of(
    name: str, rows: list[dict[str, object]], difference: tuple[float, float, float], **facts: object
) -> dict[str, object]:
    finding = {
        "name": name,
        "facts": facts,
        "claim": "",
        "paper": "",
        "here": "raw",
        "verdict": HOLDS,
        "sentence": "",
    }
    estimate = dict(zip(("value", "low", "high"), difference, strict=True))
    return {"rows": rows, "findings": [finding | {"difference": estimate}]}


def row_of(
    setting: str, measure: str, value: float, reach: float = 0.0, examples: int | None = None
) -> dict[str, object]:
    bounds = {"low": value - reach, "high": value + reach}
    return {"setting": setting, "measure": measure, "value": value, "examples": examples} | bounds


def test_useless_scores_have_no_verdict() -> None:
    ladder = [row_of(f"gpt2-{size}", "PTB perplexity", value) for size, value in (("a", 9e5), ("b", 6e4))]
    results = published(result_of("gpt2_zero_shot.column", ladder, (0.4, 0.3, 0.5), column="PTB perplexity"))
    finding = results["findings"][0]
    assert (finding["verdict"], finding["here"]) == (NOTHING, "900,000 → 60,000")
    assert "60,000, is above that of a uniform guess" in finding["sentence"]
    assert published(results) == results
    assert tally(results["findings"]) == {NOTHING: 1}
    table = claims_table([{"experiment": "gpt2_zero_shot", **results}], linked=True)
    assert sum(f"| {NOTHING} |" in line for line in table) == 1
    assert finding["sentence"] in table[-1]
    ladder[1]["value"] = 120.5
    results = published(result_of("gpt2_zero_shot.column", ladder, (0.4, 0.3, 0.5), column="PTB perplexity"))
    assert results["findings"][0]["verdict"] == HOLDS


def test_two_gains_are_no_evidence_of_losses() -> None:
    losses = {
        "full, with W_p": 6.42,
        "full, without W_p": 6.41,
        "causal, with W_p": 5.29,
        "causal, without W_p": 5.24,
    }
    rows = [row_of(setting, "held-out loss, nats per token", value) for setting, value in losses.items()]
    finding = published(result_of("gpt1_positions.full", rows, (0.04, 0.017, 0.062)))["findings"][0]
    assert finding["verdict"] == NOTHING
    assert "6.420 with W_p, 6.410 without it" in finding["here"]
    assert "0.040 (0.017 to 0.062) nats per token" in finding["here"]


def test_an_effect_below_the_smallest_does_not_hold() -> None:
    facts = {"table": "2", "what": "natural language inference", "published": "80.7"}
    finding = published(result_of("gpt1_tables.learned", [], (0.037, 0.025, 0.049), **facts))["findings"][0]
    assert finding["verdict"] == SMALLER
    assert "below 5.0 points" in finding["sentence"]
    finding = published(result_of("gpt1_tables.learned", [], (0.044, 0.021, 0.066), **facts))["findings"][0]
    assert finding["verdict"] == HOLDS


def test_intervals_of_shares_are_wilsons() -> None:
    for right, count in ((30, 200), (1, 12), (4, 4), (0, 200)):
        share = right / count
        reach = NORMAL * math.sqrt(share * (1 - share) / count)
        reference = binomtest(right, count).proportion_ci(method="wilson")
        assert wilson(share, reach or 0.3, count) == pytest.approx(tuple(reference), abs=1e-6)
    rows = [row_of(f"{n} copies", "share of the continuation that is recited", n / 64, 0.28, 4) for n in (0, 64)]
    results = published(result_of("gpt2_copies.rises", rows, (1.0, 0.61, 1.39), most=64, fewest=0))
    assert all(0 <= row["low"] <= row["value"] <= row["high"] <= 1 for row in results["rows"])
    assert results["findings"][0]["here"] == "100 % against 0 %: 100 (31 to 100) points more"
    assert published(results) == results


def test_no_published_share_leaves_the_possible() -> None:
    for path in (Path(__file__).parents[2] / "papers/results").glob("*/results.json"):
        results = read_json(path)
        assert results == published(results), "python papers/tools/publish_results.py papers/results"
        for row in results["rows"]:
            if "reach" in row:
                assert 0 <= row["low"] <= row["value"] <= row["high"] <= (100 if "%" in row["measure"] else 1), (
                    path
                )


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
            {
                "claim": "It falls.",
                "paper": "9",
                "here": "1e6",
                "verdict": NOTHING,
                "sentence": "A guess is better.",
            },
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
    assert '<span class="verdict open">says nothing</span>' in page
    assert "A guess is better." in page
    assert HOSTILE not in page
    for shown in ("74.7", "61.2", "does not hold", "0.747", "data:image/svg+xml;base64,"):
        assert shown in page
    assert 'href="#provenance"' in page
    assert 'id="provenance"' in page
    with pytest.raises(FolderError, match="another format"):
        (folder / "results.json").write_text("{}")
        claims_section([folder])


def test_a_page_shows_the_papers_tables_with_the_earlier_systems() -> None:
    for experiment in EXPERIMENTS.values():
        assert set(experiment.paper_tables) <= set(TABLES)
    assert "BiAttention MRU (9×)" in "".join(markdown(TABLES[EXPERIMENTS["gpt1_tables"].paper_tables[1]]))
