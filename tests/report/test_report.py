import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import shipped
from headwater.cli.main import main
from headwater.errors import FolderError, StorageError
from headwater.intervals import wilson
from headwater.reading import sha256_of
from headwater.report import Series, html, line_chart, report, thin
from headwater.report.content import Content, Token, read_content
from headwater.report.html import by_command, headlines, loss_charts
from headwater.report.plots import ticks
from headwater.report.scores import ScoreRow, compare, read_scores
from headwater.report.training_runs import RunSummary
from headwater.storage import Stage, provenance, write_text

HOSTILE = '<script>alert("x")</script> & "quoted" <img src=x>'


def fill(folder: Path, kind: str, files: dict[str, str], inputs: dict[str, Path], **config: Any) -> Path:
    stage = Stage(folder, kind=kind, config={"seed": 1, **config}, inputs=inputs)
    with stage.write() as work:
        for name, text in files.items():
            write_text(work / name, text)
    return folder


@pytest.fixture
def world(tmp_path: Path) -> Path:
    corpus = fill(tmp_path / "corpus", "corpus", {"text.txt": "text"}, {})
    journal = [
        {
            "step": i,
            "tokens": 100 * i,
            "loss": 8 / i,
            "seconds": i,
            **({"validation_loss": 8.5 / i, "zero-shot x.mean accuracy": i / 40} if i % 5 == 0 else {}),
        }
        for i in range(1, 21)
    ]
    run = fill(
        tmp_path / "run",
        "run",
        {
            "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in journal) + '{"step": 21, "tok',
            "config.toml": "context = 64\n[model]\nlayers = 2\nwidth = 32\nvocabulary = 300\n",
        },
        {"corpus": corpus},
    )
    entry = {"task": "heldout", "protocol": "heldout.bits-per-byte", "metric": "bits per byte", "value": 1.75}
    entry |= {"stderr": 0.02, "count": 30, "seconds": 1.0, "published": {}, "chance": None}
    yardstick = {"name": "xz -9", "bits_per_byte": 2.125, "training_bytes": 0}
    results = {
        "model": "run/model",
        "results": [
            entry | {"details": {"tokens": 1234, "yardsticks": [yardstick]}},
            entry
            | {
                "task": "x",
                "protocol": "x.mean",
                "metric": "accuracy",
                "value": 0.5,
                "chance": 0.25,
                "details": {},
            },
        ],
        "skipped": [{"task": "y", "protocol": "y.mean", "reason": HOSTILE, "examples": None}],
    }
    fill(tmp_path / "zero-shot", "results", {"results.json": json.dumps(results)}, {"corpus": run})
    tokens = [{"text": t, "probability": p} for t, p in ((" a", 0.9), (HOSTILE, 0.03), ("\n\n\n\n", 0.001))]
    sample = {"prompt": HOSTILE, "tokens": tokens, "seed": 1, "temperature": 0.8, "top_k": 40}
    fill(tmp_path / "samples", "samples", {"samples.json": json.dumps([sample])}, {"model": run})
    for name, scratch, value in (("scratch", True, 0.4), ("tuned", False, 0.6)):
        metrics = {
            "task": "classify",
            "target": "class",
            "metric": "accuracy",
            "value": value,
            "interval": [value - 0.1, value + 0.1],
        }
        metrics |= {"count": 99, "chance": 0.125, "majority": 0.2}
        metrics |= {"baseline": {"name": "TF-IDF", "value": 0.5, "interval": [0.4, 0.6], "rows": 100}}
        files = {"metrics.json": json.dumps(metrics)}
        fill(tmp_path / name, "model", files, {"model": run, "train": corpus / "text.txt"}, from_scratch=scratch)
    return tmp_path


VOID = {"meta", "br", "line", "circle", "polyline", "link", "img"}


class Tags(HTMLParser):
    """The tags and attributes of a page; fails on one that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_self_contained_and_runs_nothing(world: Path) -> None:
    page = report([world], world / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.names)
    assert not [name for name, _ in tags.attributes if name in {"src", "href", "onclick", "onload"}]
    assert not re.search(r"url\(|@import|https?://", page)
    assert "<svg" in page


def test_a_correlation_is_not_shown_as_a_percentage() -> None:
    def score(metric: str, value: float, chance: float | None) -> ScoreRow:
        return ScoreRow("x", metric, value, None, None, 100, chance=chance)

    zero_shot = [score("matthews", 0.4, 0.0), score("accuracy", 0.55, 0.5)]
    tuned = [("similarity", [score("pearson", 0.82, None)]), ("words", [score("f1", 0.8, None)])]
    content = Content([], [], zero_shot, [], [], tuned, [], {})
    found = [(line.value, line.unit) for line in headlines(content)]
    assert found == [
        ("55%", "right without training for it"),
        ("0.820", "pearson after fine-tuning"),
        ("80%", "f1 after fine-tuning"),
    ]


def test_the_headline_is_of_a_model_above_its_baseline() -> None:
    rows = [
        ScoreRow("from the pre-trained weights", "accuracy", 0.6, None, None, 100, chance=0.5, model="tuned"),
        ScoreRow("from scratch", "accuracy", 0.7, None, None, 100, chance=0.5, is_scratch=True),
        ScoreRow("baseline: TF-IDF", "accuracy", 0.55, None, None, 100, chance=0.5, is_baseline=True),
    ]
    (shown,) = headlines(Content([], [], [], [], [], [("words", rows)], [], {}))
    assert (shown.value, shown.unit) == ("60%", "accuracy after fine-tuning")
    assert shown.about == "tuned: words; chance 50%; baseline 55%"
    assert headlines(Content([], [], [], [], [], [("words", rows[1:])], [], {})) == []
    better = [rows[0], replace(rows[2], value=0.8)]
    assert headlines(Content([], [], [], [], [], [("words", better)], [], {})) == []


def results_of(folder: Path, model: str, value: float, **more: Any) -> Path:
    entry = {"task": "x", "protocol": "x.mean", "metric": "accuracy", "value": value, "stderr": 0.02, "count": 200}
    entry |= {"seconds": 1.0, "published": {}, "chance": 0.25, "details": {}} | more
    return fill(
        folder, "results", {"results.json": json.dumps({"model": model, "results": [entry], "skipped": []})}, {}
    )


def test_a_model_alone_is_not_a_report(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="A results folder is enough: it names its model"):
        report([shipped.folder_of("gpt2-mini")], tmp_path / "report.html")


def test_a_shipped_model_names_what_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "gpt2-mini"]) == 0
    assert "ships with Headwater" in capsys.readouterr().out


def test_a_limited_score_shows_its_number_of_examples(world: Path) -> None:
    results_of(world / "limited", "mine", 0.9, details={"first": 200, "available": 5_153})
    page = report([world / "limited"], world / "one.html").read_text(encoding="utf-8")
    assert page.count("200 of 5,153") == 2  # in the table and in the headline


def test_a_score_of_another_model_is_not_credited_to_the_run(world: Path) -> None:
    results_of(world / "theirs", "gpt2-mini", 0.53)
    page = report([world / "run", world / "theirs"], world / "report.html").read_text(encoding="utf-8")
    assert "gpt2-mini: x.mean" in page[: page.index("</header>")]
    table = page[page.index('id="zero-shot"') :]
    assert '<th class="n">gpt2-mini</th>' in table


def test_several_models_are_columns(world: Path) -> None:
    folders = [results_of(world / name, name, value) for name, value in (("a", 0.4), ("b", 0.6))]
    pair = compare(read_content(folders).scores)
    assert [(name, list(row)) for (name, _), row in pair.items()] == [("x.mean", ["a", "b"])]
    page = report(folders, world / "report.html").read_text(encoding="utf-8")
    assert re.search(r'<td class="n"><strong>0.600</strong>', page)
    assert all(f'<th class="n">{name}</th>' in page for name in "ab")


def test_the_score_without_overlapping_examples_is_shown(world: Path) -> None:
    overlap = {"overlap": {"mean": 0.1, "examples": 7, "value without": 0.345, "stderr without": 0.02}}
    results_of(world / "one", "mine", 0.4, details=overlap)
    page = report([world / "one"], world / "report.html").read_text(encoding="utf-8")
    assert "0.345 without 7 examples that overlap with the training text" in page


def test_a_report_replaces_only_a_report(world: Path) -> None:
    mine = world / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(FolderError, match="not a report that Headwater wrote"):
        report([world / "run"], mine)
    assert mine.read_text() == "mine"
    for _ in range(2):
        report([world / "run"], world / "report.html")


def test_folders_of_one_command_are_listed_under_it() -> None:
    steps = [
        {"commands": c, "name": n} for c, n in (([], "a.txt"), (["headwater q"], "a"), (["headwater q"], "b"))
    ]
    groups = [(command, [step["name"] for step in entries]) for command, entries in by_command(steps)]
    assert groups == [("", ["a.txt"]), ("headwater q", ["a", "b"])]


def test_two_tasks_of_one_file_are_two_tables(world: Path) -> None:
    scores = {
        "task": "classify",
        "target": "score",
        "metric": "pearson",
        "value": 0.3,
        "interval": [0.2, 0.4],
        "count": 99,
    }
    inputs = {"model": world / "run", "train": world / "corpus" / "text.txt"}
    fill(world / "scored", "model", {"metrics.json": json.dumps(scores)}, inputs)
    found = read_content([world / "tuned", world / "scored", world / "scratch"])
    rows = {title: [row.model for row in rows] for title, rows in found.fine_tuned}
    assert rows == {
        "corpus/text.txt (classify): accuracy on rows split off by seed 1": ["tuned", "scratch", ""],
        "corpus/text.txt (regress): pearson on rows split off by seed 1": ["scored"],
    }


def test_one_table_has_one_metric_and_one_set_of_rows(world: Path) -> None:
    metrics = json.loads((world / "tuned" / "metrics.json").read_text())
    for name in ("first", "second"):
        (world / f"{name}.csv").write_text(name)
    train = {"model": world / "run", "train": world / "corpus" / "text.txt"}
    for name, changed, validation in (
        ("other-metric", {"metric": "matthews", "value": 0.0}, "first"),
        ("on-first", {}, "first"),
        ("on-second", {}, "second"),
    ):
        files = {"metrics.json": json.dumps(metrics | changed)}
        fill(world / name, "model", files, train | {"validation": world / f"{validation}.csv"})
    # Trained further: the rows that its base was trained on are not split off.
    files = {"metrics.json": json.dumps(metrics), "predictions-validation.jsonl": '{"row": 7}\n'}
    fill(world / "further", "model", files, train)
    names = ("tuned", "on-first", "on-second", "other-metric", "further")
    tables = read_content([world / name for name in names]).fine_tuned
    assert [(title.partition(": ")[2], [row.model for row in rows]) for title, rows in tables] == [
        ("accuracy on rows split off by seed 1", ["tuned", ""]),
        ("accuracy on first.csv", ["on-first", ""]),
        ("accuracy on second.csv", ["on-second", ""]),
        ("matthews on first.csv", ["other-metric", ""]),
        ("accuracy on rows split off by seed 1", ["further", ""]),
    ]
    assert all(row.metric == title.split()[2] for title, rows in tables for row in rows)


def test_scores_of_other_texts_or_examples_are_not_compared(world: Path) -> None:
    results = json.loads((world / "zero-shot" / "results.json").read_text())
    bits, accuracy = results["results"]
    for name, size, count in (("a", 5_000, 30), ("b", 9_000, 400)):
        own = [
            bits | {"value": size / 5_000, "details": {"bytes": size}},
            accuracy | {"value": 0.9, "count": count},
        ]
        content = {"model": f"model-{name}", "results": own, "skipped": []}
        fill(world / name, "results", {"results.json": json.dumps(content)}, {})
    content = read_content([world / "zero-shot", world / "a", world / "b"])
    assert [(bar.text, bar.value) for bar in content.bars if bar.text] == [
        ("30 documents, 5,000 bytes", 1.0),
        ("30 documents, 9,000 bytes", 1.8),
    ]
    (row,) = compare(content.scores).values()
    assert len(row) == 3


def test_a_sample_without_probabilities_claims_none(world: Path) -> None:
    line = {"step": 20, "prompt": "Once", "text": " upon"}
    (world / "run" / "samples.jsonl").write_text(json.dumps(line) + "\n")
    page = report([world / "run"], world / "page.html").read_text()
    assert '<span class="t t0"> upon</span>' in page


def test_the_interval_of_a_perfect_score_is_shown_with_both_ends(tmp_path: Path) -> None:
    entry = {"task": "x", "protocol": "x.mean", "metric": "accuracy", "value": 1.0, "stderr": 0.08, "count": 10}
    entry |= {"seconds": 1.0, "published": {}, "chance": 0.5, "details": {}}
    results = {"model": "m", "results": [entry], "skipped": []}
    fill(tmp_path / "results", "results", {"results.json": json.dumps(results)}, {})
    page = report([tmp_path / "results"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "0.722 – 1.000" in page


def test_what_was_skipped_is_shown_without_any_score(tmp_path: Path) -> None:
    skipped = [{"task": "y", "protocol": "y.mean", "reason": "its file was not found", "examples": None}]
    results = {"model": "m", "results": [], "skipped": skipped}
    fill(tmp_path / "results", "results", {"results.json": json.dumps(results)}, {})
    page = report([tmp_path / "results"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "y.mean: its file was not found" in page
    assert "<thead>" not in page


def test_it_shows_what_the_folders_hold(world: Path) -> None:
    content = read_content([world])
    (run,) = content.runs
    assert run.curves["loss"][-1] == (2000, 0.4)  # the line that was cut short is left out
    assert [x for x, _ in run.curves["validation_loss"]] == [500, 1000, 1500, 2000]
    assert run.facts["model"] == "2 layers × 32"
    assert run.curves["zero-shot x.mean accuracy"] == [(500, 0.125), (1000, 0.25), (1500, 0.375), (2000, 0.5)]
    assert [(bar.name, bar.is_model) for bar in content.bars] == [("run", True), ("xz -9", False)]
    (score,) = content.scores
    assert score.high == pytest.approx(wilson(15, 30)[1])
    ((_, table),) = content.fine_tuned
    assert [(s.name, s.value) for s in table] == [
        ("from the pre-trained weights", 0.6),
        ("from scratch", 0.4),
        ("baseline: TF-IDF", 0.5),  # once, since both models have the same rows
    ]
    page = report([world], world / "report.html").read_text(encoding="utf-8")
    for text in (
        "2.125",
        "0.500",
        "0.332 – 0.668",
        "0.600",
        "xz -9",
        "x.mean",
        "temperature 0.8, top-k 40, seed 1",
    ):
        assert text in page


def test_the_chain_names_each_folder_once_after_its_inputs(world: Path) -> None:
    steps = [step["name"] for step in read_content([world]).steps]
    assert len(steps) == len(set(steps))
    assert steps.index("corpus") < steps.index("run") < steps.index("zero-shot")
    write_text(world / "corpus" / "text.txt", "tampered")
    with pytest.raises(FolderError, match="8 bytes"):
        read_content([world])


def test_folders_of_one_name_have_different_labels(tmp_path: Path) -> None:
    line = json.dumps({"step": 1, "tokens": 9, "loss": 2.0}) + "\n"
    entry = {"task": "x", "protocol": "x.mean", "metric": "accuracy", "value": 0.5, "stderr": 0.1, "count": 9}
    entry |= {"published": {}, "details": {}}
    for name in ("a", "b"):
        tokens = fill(tmp_path / name / "tokens", "tokens", {"x": name}, {})
        for run in (tmp_path / "runs" / name, tmp_path / name / "run"):
            fill(run, "run", {"metrics.jsonl": line}, {"tokens": tokens})
        model = fill(tmp_path / name / "run" / "model", "model", {"x": name}, {})
        results = {"model": "run/model", "results": [entry], "skipped": []}  # each evaluated in its own directory
        fill(tmp_path / name / "zero-shot", "results", {"results.json": json.dumps(results)}, {"model": model})
    chain = {step["name"]: step["sources"] for step in read_content([tmp_path / "runs"]).steps}
    assert chain == {"../a/tokens": [], "a": ["../a/tokens"], "../b/tokens": [], "b": ["../b/tokens"]}
    found = read_content([tmp_path / "a", tmp_path / "b"])
    assert [run.name for run in found.runs] == ["a/run", "b/run"]
    assert [score.model for score in found.scores] == ["a/run", "b/run"]


def test_a_model_of_the_hub_or_behind_a_link_keeps_its_name(tmp_path: Path) -> None:
    entry = {"task": "x", "protocol": "x.mean", "metric": "accuracy", "value": 0.5, "stderr": 0.1, "count": 9}
    entry |= {"published": {}, "details": {}}
    cached = fill(tmp_path / "models--openai--gpt9" / "snapshots" / "607a30d7", "model", {"x": "1"}, {})
    (tmp_path / "best").symlink_to(fill(tmp_path / "runs" / "a", "model", {"x": "2"}, {}))
    for name, model in (("openai/gpt9", cached), ("best", tmp_path / "best")):
        results = {"model": name, "results": [entry], "skipped": []}
        out = tmp_path / "scores" / model.name
        fill(out, "results", {"results.json": json.dumps(results)}, {"model": model})
    assert {score.model for score in read_content([tmp_path / "scores"]).scores} == {"openai/gpt9", "../best"}


def test_tokens_are_tinted_by_probability(world: Path) -> None:
    assert [Token("", p).step for p in (1, 0.5, 0.49, 0.2, 0.1, 0.04, 0.009)] == [0, 0, 1, 1, 2, 3, 4]
    (sample,) = read_content([world]).samples
    assert sample.tokens[-1].text == "\n\n\n\n"


def test_the_same_folders_give_the_same_bytes(world: Path) -> None:
    first = report([world / "run", world / "zero-shot"], world / "a.html").read_bytes()
    assert report([world / "run", world / "zero-shot"], world / "b.html").read_bytes() == first


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="nowhere"):
        report([tmp_path / "nowhere"], tmp_path / "x.html")
    with pytest.raises(FolderError, match="contains no folder"):
        report([tmp_path], tmp_path / "x.html")


points = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=700)


@given(points, st.integers(1, 300))
def test_thinning_keeps_the_mean_of_equal_groups(given_points: list[tuple[float, float]], most: int) -> None:
    thinned = thin(given_points, most)
    assert 1 <= len(thinned) <= most
    if len(given_points) % len(thinned) == 0 and len(given_points) // len(thinned) == -(
        -len(given_points) // most
    ):
        mean = sum(y for _, y in given_points) / len(given_points)
        assert sum(y for _, y in thinned) / len(thinned) == pytest.approx(mean, abs=1e-3)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8))
def test_ticks_are_inside_and_few(low: float, span: float, count: int) -> None:
    found = ticks(low, low + span, count)
    slack = span * 1e-6 + abs(low) * 1e-12
    assert all(low - slack <= tick <= low + span + slack for tick in found)
    assert len(found) <= count + 1


def test_a_chart_of_nothing_is_nothing_and_of_one_point_is_drawn() -> None:
    assert line_chart([Series("empty", [])], "x", "y") == ""
    assert line_chart([Series("nan", [(0.0, float("nan"))])], "x", "y") == ""
    level = line_chart([Series("level", [(n, 1.0) for n in range(4)])], "x", "y")
    assert (level.count('class="grid"'), level.count('text-anchor="end">1<')) == (2, 2), (
        "an axis beyond its only value"
    )
    two = line_chart([Series("two", [(0.0, 1.0), (1.0, 2.0)])], "x", "y")
    assert "circle" in two
    assert "polyline" not in two, "what lies between two measurements is not known"
    assert "polyline" in line_chart([Series("three", [(0.0, 1.0), (1.0, 2.0), (2.0, 2.5)])], "x", "y")


def test_a_page_without_a_name_cannot_be_written(world: Path) -> None:
    with pytest.raises(StorageError, match=r"\. cannot be written: Is a directory"):
        report([world / "run"], Path())


def test_a_file_given_as_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(FolderError, match=r"results.json is a file; expected a folder"):
        report([tmp_path / "results.json"], tmp_path / "page.html")


def test_the_papers_models_are_columns_from_small_to_xl(world: Path) -> None:
    sizes = {f"gpt2-{size}": 1.0 for size in ("small", "medium", "large", "xl")}
    published = enumerate(({"gpt2-xl": 1.0}, {"paper": 1.0}, sizes))
    folders = [results_of(world / f"{n}", "a", 0.5, protocol=f"x.{n}", published=one) for n, one in published]
    page = report(folders, world / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<th class="n">([^<]+), paper</th>', page) == [*sizes, "paper"]


def test_a_report_fits_the_screen_and_shows_every_column(world: Path, browser: Any) -> None:
    sizes = {f"gpt2-{size}": 35.13 for size in ("small", "medium", "large", "xl")}
    score = {"task": "lambada", "metric": "perplexity", "value": 1234.5, "stderr": 60.2, "count": 5153}
    score |= {"seconds": 1.0, "published": sizes, "chance": 0.25, "details": {}}
    names = ("lambada.openai.whole-word.stop-words", "cbt.named-entities.detokenized")
    results = {"model": "gpt2-mini-ko", "results": [score | {"protocol": name} for name in names], "skipped": []}
    fill(world / "published", "results", {"results.json": json.dumps(results)}, {"model": world / "run"})
    folders = [
        [world / "published"],
        [world / name for name in ("run", "zero-shot", "published", "samples", "tuned")],
    ]
    page = browser.new_page()
    inside = "e => e.scrollWidth <= e.parentElement.clientWidth + 1"
    for number, one in enumerate(folders):  # one model, and a matrix of two
        page.goto(report(one, world / f"page-{number}.html").as_uri())
        for width in (390, 1200, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert width == 390 or page.evaluate(f"[...document.querySelectorAll('table, pre')].every({inside})")
    page.close()


def branch(world: Path) -> Path:
    """Write a run that continues the checkpoint of update 10 of `run`, at another rate."""
    checkpoint = world / "run" / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    journal = [
        {"step": n, "tokens": 50 * n, "loss": 1.0, "learning_rate": 0.1 / n, "gradient_norm": 2.0}
        for n in (1, 2, 3)
    ]
    files = {
        "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in journal),
        "config.toml": 'init_from = "run@10"\npreset = "gpt2-mini"\ncontext = 64\nlearning_rate = 0.001\n'
        "[model]\nlayers = 2\nwidth = 32\nvocabulary = 300\n",
    }
    return fill(world / "branch", "run", files, {"corpus": world / "corpus", "model": checkpoint})


def test_a_branch_begins_where_its_parent_had_come_to(world: Path) -> None:
    content = read_content([world / "run", branch(world)])
    assert [run.name for run in content.runs] == ["run", "branch from run@10"]
    assert content.runs[1].curves["loss"] == [(1_050, 1.0), (1_100, 1.0), (1_150, 1.0)]
    page = report([world / "run", world / "branch"], world / "page.html").read_text()
    assert "Learning rate over the tokens read" in page


@pytest.mark.parametrize(
    ("value", "stderr", "judged"),
    [(1.75, 0.02, "better than"), (2.12, 0.02, "not distinguishable from"), (2.5, 0.02, "worse than")],
)
def test_page_and_terminal_compare_with_the_best_yardstick(
    world: Path, value: float, stderr: float, judged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"task": "heldout", "protocol": "h", "metric": "bits per byte", "value": value, "stderr": stderr}
    entry |= {"count": 30, "published": {}}
    yardsticks = [{"name": "xz -9", "bits_per_byte": 2.125, "training_bytes": 0}]
    details = {"bytes": 900, "yardsticks": [*yardsticks, yardsticks[0] | {"name": "zip", "bits_per_byte": 3.0}]}
    results = {"model": "run/model", "results": [entry | {"details": details}], "skipped": []}
    fill(world / "scores", "results", {"results.json": json.dumps(results)}, {"model": world / "run"})
    assert main(["report", str(world / "run"), str(world / "scores"), "--out", str(world / "page.html")]) == 0
    page = (world / "page.html").read_text()
    sentence = f"run is {judged} the best yardstick, xz -9, with 95 % confidence: {value:.3f} bits for a byte"
    assert sentence in page
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert str(world) not in page, "a published page names no folder of its author"


def test_losses_of_two_tokenizers_have_two_plots() -> None:
    curves = {"loss": [(1.0, 2.0), (2.0, 1.0), (3.0, 0.5)]}
    runs = [RunSummary(name, {}, True, curves, tokenizer) for name, tokenizer in (("a", 1), ("b", 2), ("c", 1))]
    shown = [[series.name for series in lines] for lines, _ in loss_charts(runs)]
    assert shown == [["a: training", "c: training"], ["b: training"]]
    page = html.render(Content(runs, [], [], [], [], [], [], {}), "two tokenizers")
    assert "are not comparable" in page
    assert page.count("<figure>") == 2


def test_sources_are_hashed_once_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a quickstart read its 20 GB of text a dozen times."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("text")
    corpus = fill(tmp_path / "corpus", "corpus", {}, {"source": tmp_path / "texts"})
    tokens = fill(tmp_path / "tokens", "tokens", {}, {"corpus": corpus, "source": tmp_path / "texts"})
    hashed = Counter[str]()

    def counting(path: Path) -> str:
        hashed[path.name] += 1
        return sha256_of(path)

    monkeypatch.setattr(provenance, "sha256_of", counting)
    report([corpus, tokens], tmp_path / "page.html")
    assert hashed["a.txt"] == 1


LOST = "; 25.0% of the text is lost by the tokenizer"


def test_losses_of_tokenizers_that_lose_different_text_are_in_different_rankings() -> None:
    def read(model: str, lost: dict[str, float]) -> Any:
        details = {"tokens": 9, "bytes": 40} | ({"lost text": lost} if lost else {})
        entry = {"value": 1.5, "stderr": 0.1, "count": 3, "published": {}, "chance": None, "details": details}
        held_out = entry | {"task": "heldout", "protocol": "heldout.bits-per-byte", "metric": "bits per byte"}
        loss = entry | {"task": "ptb", "protocol": "ptb.tokens", "metric": "perplexity", "higher_is_better": False}
        share = entry | {"task": "x", "protocol": "x.mean", "metric": "accuracy", "higher_is_better": True}
        return read_scores({"model": model, "results": [held_out, loss, share], "skipped": []}, model)

    bars, scores, _ = zip(*(read("whole", {}), read("lossy", {"lost": 0.25})), strict=True)
    assert [bar.text for bar in chain(*bars)] == ["3 documents, 40 bytes", *[f"3 documents, 40 bytes{LOST}"]]
    rows = compare(list(chain(*scores)))
    assert [(name, sorted(row)) for (name, _), row in rows.items()] == [
        ("ptb.tokens", ["whole"]),
        ("x.mean", ["lossy", "whole"]),
        (f"ptb.tokens{LOST}", ["lossy"]),
    ]
