"""Experiments at a tiny scale: kept when killed, missing data named, one run a folder, verdicts by the rule."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater import shipped
from headwater.cli.main import main
from headwater.errors import DataError, FolderError, ResourceError, UsageError
from headwater.storage import folder_lock, lineage
from headwater_papers import page as page_module
from headwater_papers import reproduce
from headwater_papers import reproduction as run_module
from headwater_papers.experiment import Findings
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import (
    ModelPlan,
    Rows,
    Scale,
    check_machine,
    cost_of,
    load_scale,
    scale_names,
    shape_of,
)
from headwater_papers.setup import describe_work


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, scale: Scale, texts: Path) -> Path:
    out = tmp_path_factory.mktemp("reproduction") / "out"
    reproduce(["gpt1_perplexity"], scale, texts, out)
    return out


def test_an_experiment_leaves_numbers_figures_and_a_page(done: Path) -> None:
    folder = done / "gpt1_perplexity"
    results = json.loads((folder / "results.json").read_text())
    assert {row["seeds"] for row in results["rows"]} == {3}
    assert results["findings"]
    for name in ("validation-loss.png", "validation-loss.svg", "README.md", "made.json"):
        assert (folder / name).stat().st_size > 0
    page = (folder / "README.md").read_text()
    assert "18.4" in page
    assert "95 % interval" in page
    chain = lineage(folder)
    assert {entry["kind"] for entry in chain["inputs"]} >= {"corpus", "tokens", "run", "perplexity"}


def test_killed_and_run_again_it_finds_the_same(
    done: Path, tmp_path: Path, scale: Scale, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perplexity = Laboratory.perplexity
    calls = []

    def killed(self: Laboratory, *arguments: object) -> dict[str, float]:
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return perplexity(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Laboratory, "perplexity", killed)
        with pytest.raises(KeyboardInterrupt):
            reproduce(["gpt1_perplexity"], scale, texts, tmp_path / "out")
    made = {path.name for path in (tmp_path / "out" / "shared").glob("run-*")}
    assert 0 < len(made) < 12
    reproduce(["gpt1_perplexity"], scale, texts, tmp_path / "out")
    name = "gpt1_perplexity/results.json"
    assert (tmp_path / "out" / name).read_bytes() == (done / name).read_bytes()


def test_a_failure_keeps_earlier_experiments_on_the_page(
    done: Path, scale: Scale, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(laboratory: Laboratory) -> Findings:
        raise DataError("the text is too short")

    later = replace(EXPERIMENTS["gpt1_perplexity"], name="gpt1_later", run=fail)
    monkeypatch.setitem(EXPERIMENTS, "gpt1_later", later)
    (done / "README.md").unlink()
    with pytest.raises(DataError, match="too short"):
        reproduce(["gpt1_perplexity", "gpt1_later"], scale, texts, done)
    assert "gpt1_perplexity/README.md" in (done / "README.md").read_text()


def test_stages_are_shared_and_reused(done: Path, scale: Scale, texts: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "shared").rglob("*") if path.is_file()}
    reproduce(["gpt1_perplexity"], scale, texts, done)
    after = {path: path.stat().st_mtime_ns for path in (done / "shared").rglob("*") if path.is_file()}
    assert after == before


def test_half_removed_results_are_made_again(
    done: Path, scale: Scale, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def killed(folder: str | Path, **options: Any) -> None:
        for manifest in Path(folder).rglob("headwater.json"):
            manifest.unlink()
            raise KeyboardInterrupt
        remove(folder, **options)

    before = (done / "gpt1_perplexity" / "results.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        patched.setattr("tempfile._rmtree", killed, raising=False)  # Python 3.11.2 binds it at import
        with pytest.raises(KeyboardInterrupt):
            reproduce(["gpt1_perplexity"], scale, texts, done)
    reproduce(["gpt1_perplexity"], scale, texts, done)
    assert (done / "gpt1_perplexity" / "results.json").read_bytes() == before


def test_the_work_is_listed_before_it_starts(scale: Scale) -> None:
    pieces = {("pre-training", f"gpt1, seed {seed}") for seed in scale.seeds}
    pieces |= {("fine-tuning on sst2", "full, seed 1"), ("fine-tuning on rte", "3 layers, seed 1")}
    told = describe_work(scale, pieces, cost_of(scale, ["gpt1"]))
    # 48 rows once, each of one context; pre-training reads 4 updates of 4 contexts with 3 seeds.
    assert told == (
        "the work: fine-tuning: 2; pre-training: 3; fine-tuning takes at most 1.0 times what pre-training takes"
    )
    sets = scale.labelled.model_copy(update={"sets": scale.labelled.sets | {"rte": Rows()}})
    scale = scale.model_copy(update={"labelled": sets})
    assert "without rte, of which all rows are used" in describe_work(scale, pieces, cost_of(scale, ["gpt1"]))


def test_missing_data_is_named(tmp_path: Path, scale: Scale) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match=r"text\.txt"):
        reproduce(["gpt1_perplexity"], scale, tmp_path / "data", tmp_path / "out")


def test_an_impossible_experiment_is_named_before_the_start(tmp_path: Path, scale: Scale) -> None:
    data = tmp_path / "data"
    (data / "finetune").mkdir(parents=True)
    (data / "text.txt").write_text("words")
    lacking = {name: EXPERIMENTS[name].missing(scale, data) for name in EXPERIMENTS}
    assert lacking["gpt1_perplexity"] == []
    assert lacking["gpt1_layers"] == ["one of the sets sst2 (finetune) with rows in the scale"]
    assert "dev.tsv" in lacking["gpt1_updates"][0]
    assert {str(lacking[name]) for name in EXPERIMENTS if name.startswith("gpt2_") and name != "gpt2_lambada"} == {
        "[\"a model 'copies' in the scale\"]",
        "[\"a model 'gpt2-' in the scale\"]",
        "[\"a model 'optimal-' in the scale\", \"a model 'scaling-' in the scale\"]",
    }
    ladder = scale.model_copy(update={"models": {"gpt2-a": scale.models["gpt1"]}})
    assert "WSC273" in EXPERIMENTS["gpt2_tasks"].missing(ladder, data)[0]
    (data / "text.txt").unlink()
    assert EXPERIMENTS["gpt2_samples"].missing(ladder, data) == ["the text books (text.txt)"]


@pytest.mark.parametrize(
    ("experiments", "named"),
    [
        ({"gpt1_perplexty": {}}, "gpt1_perplexity"),
        ({"gpt1_updates": {"tasks": {"lambada": 3}}}, "sst-2"),
        ({"gpt1_layers": {"sets": ["sst"]}}, "sst2"),
    ],
)
def test_a_wrong_name_in_a_scale_is_answered_with_the_right_ones(
    tmp_path: Path, texts: Path, scale: Scale, experiments: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        reproduce(["gpt1"], scale.model_copy(update={"experiments": experiments}), texts, tmp_path / "out")


def test_two_runs_in_one_folder_are_refused(tmp_path: Path, scale: Scale, texts: Path) -> None:
    (tmp_path / "out").mkdir()
    with folder_lock(tmp_path / "out"), pytest.raises(FolderError, match="in use"):
        reproduce(["gpt1_perplexity"], scale, texts, tmp_path / "out")


def test_a_data_file_that_is_added_gets_new_scores(tmp_path: Path, scale: Scale) -> None:
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "the river flows north"}\n' * 2)
    model = shipped.resolve(shipped.names()[0])
    tasks = ["lambada.openai.last-token", "wsc273.full"]

    def scored() -> tuple[set[str], Path]:
        laboratory = Laboratory(scale, tmp_path, tmp_path / "shared")
        results, folder = laboratory.evaluate("both", model, tasks)
        return {one.protocol for one in results.results}, folder

    first = scored()
    assert first[0] == {"lambada.openai.last-token"}
    (tmp_path / "wsc273.txt").write_text("One saw two when [MASK] came .\n[MASK]\none,two\none\n\n" * 2)
    then = scored()
    assert then[0] == set(tasks)
    assert then[1] != first[1]


def test_an_unknown_experiment_is_answered_with_the_nearest(tmp_path: Path, scale: Scale, texts: Path) -> None:
    with pytest.raises(UsageError, match="gpt1_perplexity"):
        reproduce(["gpt1_perplexty"], scale, texts, tmp_path / "out")


def test_a_commit_is_named_only_if_it_has_this_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment that lies inside the checkout of another project."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    (tmp_path / "page.py").touch()
    monkeypatch.setattr(page_module, "__file__", str(tmp_path / "page.py"))
    assert page_module.commit() == "unknown"
    for arguments in (["add", "page.py"], [*identity, "commit", "-q", "-m", "ours"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    assert len(page_module.commit()) == 12


def test_a_page_marks_a_scale_that_does_not_ship(done: Path, scale: Scale) -> None:
    assert load_scale("mini", {"most_hours": 100}).changed == []
    assert load_scale("mini", {"seeds": [1, 2]}).changed == ["seeds=[1, 2]"]
    assert load_scale("mini").model_copy(update={"texts": {}}).changed is None
    folder = done / "gpt1_perplexity"
    assert "not one that comes with Headwater" in (folder / "README.md").read_text()
    assert Scale.build(json.loads((folder / "made.json").read_text())["scale"]) == scale


def test_every_scale_can_be_read() -> None:
    assert {"mini"} <= set(scale_names())
    for name in scale_names():
        assert load_scale(name).name == name
    with pytest.raises(UsageError, match="mini"):
        load_scale("minii")


_LIKE = """
about = "for tests"
texts.books.sources = ["books.txt"]
[models.gpt1]
text = "books"
snapshots = [1]
recipe = { preset = "gpt1-nano", steps = 10, model = { layers = 1, heads = 1 } }
[models.lstm]
like = "gpt1"
recipe = { preset = "lstm-nano", model = { layers = 2 } }
[models.half]
like = "lstm"
recipe.steps = 5
"""


@pytest.mark.parametrize("name", ["mini", "small", "paper"])
def test_the_compared_models_of_a_scale_start_from_one_deviation(name: str) -> None:
    scale = load_scale(name)
    shapes = [shape_of(scale, model) for model in ("gpt1", "lstm", "bert", "elmo")]
    assert len({shape.init_deviation for shape in shapes}) == 1


def test_a_model_like_another_shares_its_text_and_recipe(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(_LIKE)
    models = load_scale(str(tmp_path / "own.toml"), {"models": {"gpt1": {"recipe": {"steps": 20}}}}).models
    assert models["gpt1"].recipe["steps"] == 20  # of this model alone
    lstm = {"preset": "lstm-nano", "steps": 10, "model": {"layers": 2}}
    assert models["lstm"] == ModelPlan(text="books", recipe=lstm)
    assert models["half"].recipe == lstm | {"steps": 5}


@pytest.mark.parametrize("like", ['"gtp1"', '"lstm"', '["gpt1"]', '"half"'])
def test_a_model_like_none_that_comes_before_is_refused(tmp_path: Path, like: str) -> None:
    (tmp_path / "own.toml").write_text(_LIKE.replace('like = "gpt1"', f"like = {like}"))
    with pytest.raises(UsageError, match=r"own\.toml: models\.lstm\.like"):
        load_scale(str(tmp_path / "own.toml"))


@pytest.mark.parametrize("seeds", [[], [1, 1, 2]])
def test_seeds_that_give_no_spread_are_refused(seeds: list[int]) -> None:
    with pytest.raises(UsageError, match="seeds"):
        load_scale("mini", {"seeds": seeds})


def test_a_scale_that_does_not_fit_is_refused_first(
    tmp_path: Path, scale: Scale, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ResourceError, match="floating-point operations"):
        reproduce(["gpt1_perplexity"], scale.model_copy(update={"run": False}), texts, tmp_path / "out")
    with pytest.raises(ResourceError, match="hours"):
        reproduce(["gpt1_perplexity"], scale.model_copy(update={"most_hours": 1e-12}), texts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_time_of_a_model_follows_from_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = load_scale("mini")
    rates = {torch.bfloat16: 2e11, torch.float32: 1e11}
    monkeypatch.setattr("headwater_papers.scale.matmul_rate", lambda dtype, device: rates[dtype])
    for name, dtype in {"gpt1": torch.bfloat16, "lstm": torch.float32}.items():
        minutes = cost_of(scale, [name]).flops / rates[dtype] / 0.4 / 60
        assert f"about {minutes:,.0f} minutes" in check_machine(scale, [name], "cpu")


def test_the_papers_own_scale_is_refused_with_its_cost(tmp_path: Path, texts: Path) -> None:
    # Six operations per weight and token, a million updates of 64 x 512 tokens, Transformer and LSTM: some 3e19.
    with pytest.raises(ResourceError, match=r"floating-point operations over [\d,]{13,} tokens .* GPU-days"):
        reproduce(["all"], load_scale("paper"), texts, tmp_path / "out")


def test_a_scale_without_a_text_leaves_its_experiments_out(tmp_path: Path, scale: Scale, texts: Path) -> None:
    with pytest.raises(DataError, match="'books' in the scale"):
        reproduce(["gpt1_perplexity"], scale.model_copy(update={"texts": {}}), texts, tmp_path / "out")


def test_the_command_lists_and_runs(
    done: Path, tmp_path: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "--list"]) == 0
    assert "gpt1_perplexity" in capsys.readouterr().out
    assert main(["reproduce"]) == 2
    assert main(["reproduce", "gpt1_perplexity", "--data", str(tmp_path / "none")]) == 2
    assert run_module.choose(["all"])
