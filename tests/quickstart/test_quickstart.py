"""The whole flow: from text to a report, again without work, and what it does with text that is too little."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import headwater.quickstart.flow
from headwater import shipped
from headwater.cli.main import main
from headwater.corpus import BuildConfig, build_corpus
from headwater.errors import DataError, FolderError
from headwater.inference import LanguageModel
from headwater.model import build_model, preset
from headwater.pretraining import PretrainConfig
from headwater.pretraining.recipe import resolve
from headwater.quickstart import Quickstart, quickstart
from headwater.quickstart.flow import (
    SCORED,
    TEXT_BYTES,
    choose_prompts,
    choose_recipe,
    choose_start,
)
from headwater.storage import QUICKSTART, SILENT, Progress, lineage, open_folder, read_manifest, write_json
from headwater.storage.provenance import MANIFEST
from headwater.tokenizer import Tokenizer
from headwater.training import Ranks

# Smaller than quickstart's, for speed.
BATCH = 4


@pytest.fixture(scope="module", autouse=True)
def shelf(tmp_path_factory: pytest.TempPathFactory, tokens: Path) -> Iterator[None]:
    """A model of some thousand weights in place of the one that ships: the flow is the same, and quick."""
    tokenizer = Tokenizer.load(tokens / "tokenizer")
    config = preset("gpt2-pico", layers=1, width=16, heads=2, context=64, vocabulary=tokenizer.vocabulary_size)
    folder = tmp_path_factory.mktemp("shelf")
    LanguageModel(build_model(config, seed=1), tokenizer).save(folder / shipped.DEFAULT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headwater.shipped.catalogue.FOLDER", folder)
        patched.setattr(headwater.quickstart.flow, "BATCH", BATCH)
        yield


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """Two text files, so that there are sources to tell apart, and a very short training in their folder."""
    folder = tmp_path_factory.mktemp("quickstart")
    text = folder / "texts"
    text.mkdir()
    parts = sample_text.split("\n<|endoftext|>\n")
    halves = ["\n".join(parts[:6]), "\n".join(parts[6:])]  # long enough for passages of their held-out ends
    for number in range(2):
        half = sample_text[number::2] if number else "\n<|endoftext|>\n".join(halves)
        (text / f"{number}.txt").write_text(half * 3, encoding="utf-8")
    assert main(["quickstart", "--minutes", "0.03", str(text), "--out", str(text / "out")]) == 0
    return text / "out"


def test_every_stage_leaves_its_folder(flow: Path) -> None:
    kinds = {
        "corpus": "corpus",
        "tokenizer": "tokenizer",
        "tokens": "tokens",
        "run": "run",
        "run/model": "model",
        "samples": "samples",
        "labels/source": "labels",
        "zero-shot": "results",
        "fine-tuned/source": "model",
    }
    for name, kind in kinds.items():
        open_folder(flow / name, kind)


def test_a_fine_tuning_reads_only_the_rows_that_it_learns(flow: Path) -> None:
    metrics = json.loads((flow / "fine-tuned/source/metrics.json").read_text())
    assert "baseline" in metrics
    steps = read_manifest(flow / "fine-tuned/source").config["steps"]
    assert max(metrics["counts"].values()) <= BATCH * steps
    assert len(metrics.get("curve", [])) <= 1  # of LP-FT, if it is a member


def test_every_stage_with_a_model_runs_on_the_given_device(
    flow: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def recorded(call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*given: Any, **options: Any) -> Any:
            asked.append(options["device"] if "device" in options else given[0].to_dict()["device"])
            return call(*given, **options)

        return record

    for name in ("write_samples", "evaluate", "pretrain", "finetune"):
        monkeypatch.setattr(headwater.quickstart.flow, name, recorded(getattr(headwater.quickstart.flow, name)))
    text = [str(flow.parent)]
    again = ["quickstart", "--minutes", "0.03", *text, "--out", str(flow)]
    assert main([*again, "--device", "cpu"]) == 0
    assert asked == ["cpu"] * 4  # pre-training, samples, an evaluation, a fine-tuning
    assert main([*again[:-1], str(flow.parent / "other"), "--device", "gpu"]) == 2
    assert "device 'gpu' cannot be used" in capsys.readouterr().err
    assert not (flow.parent / "other").exists()


def test_the_report_is_one_file_without_network(flow: Path) -> None:
    page = (flow / "report.html").read_text(encoding="utf-8")
    assert "<script src" not in page
    assert 'href="http' not in page
    assert 'src="http' not in page
    for shown in ("bits per byte", "xz -9", "n-gram", "fine-tuned", "corpus"):
        assert shown in page


def test_the_minutes_limit_what_is_gathered_scored_and_learned(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held_out,) = (
        result
        for result in json.loads((flow / "zero-shot/results.json").read_text())["results"]
        if result["protocol"] == "heldout.bits-per-byte"
    )
    details = held_out["details"]
    assert held_out["count"] == min(math.ceil(0.03 * SCORED), details.get("available", held_out["count"]))
    learned = [yardstick["training_bytes"] for yardstick in details["yardsticks"]]
    assert 0 < max(learned) <= math.ceil(0.03 * TEXT_BYTES) < details["training text bytes"]
    page = (flow / "report.html").read_text(encoding="utf-8")
    whole = details["training text bytes"]
    assert f"has read {max(learned) / 1e6:.1f} of {whole / 1e6:.1f} MB of the training text" in page

    asked: list[BuildConfig] = []

    def record(sources: list[str], out: Path, config: BuildConfig, **_: Progress) -> None:
        asked.append(config)
        raise DataError("stop here")

    monkeypatch.setattr("headwater.quickstart.flow.build_corpus", record)
    for minutes in (2, 4):
        with pytest.raises(DataError, match="stop here"):
            quickstart(tmp_path / str(minutes), minutes=minutes)
    assert [config.python_docs_bytes for config in asked] == [2 * TEXT_BYTES, 4 * TEXT_BYTES]


def test_a_score_is_traced_back_to_the_text(flow: Path) -> None:
    chain = lineage(flow / "zero-shot")
    found = []
    while chain["inputs"]:
        chain = chain["inputs"][0]
        found.append((chain["kind"], chain["state"]))
    assert found == [
        ("model", "complete"),
        ("tokens", "complete"),
        ("corpus", "complete"),
        ("folder", "source"),
    ]


def test_run_again_it_does_nothing_twice(flow: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {p: p.stat().st_mtime_ns for p in flow.rglob("*") if p.is_file() and p.name != "report.html"}
    arguments = ["--minutes", "0.03", str(flow.parent), "--out", str(flow), "--json"]
    assert main(["quickstart", *arguments]) == 0
    printed = capfd.readouterr()
    assert re.search(r"run is \w[\w ]+ the best yardstick, .*: .* bits for a byte", " ".join(printed.err.split()))
    after = {p: p.stat().st_mtime_ns for p in flow.rglob("*") if p.is_file() and p.name != "report.html"}
    assert after == before
    result = json.loads(printed.out)
    assert {r["protocol"] for r in result["results"]} >= {"heldout.bits-per-byte"}
    assert result["fine-tuned"]


def test_a_run_killed_before_its_first_update_keeps_its_recipe(flow: Path, tmp_path: Path) -> None:
    written = read_manifest(flow / "run")
    begun = written.model_copy(update={"complete": False, "files": {}}).sealed()
    write_json(tmp_path / MANIFEST, begun.to_dict())
    recipe = choose_recipe([PretrainConfig()], flow / "tokens", tmp_path, 1, 1, "cpu", SILENT)
    assert resolve(recipe, flow / "tokens", Ranks(device=torch.device("cpu"))).deciding() == written.config


def test_other_text_into_the_same_folder_is_refused(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("Other words entirely. " * 500)
    with pytest.raises(FolderError, match="already contains something else"):
        quickstart(flow, minutes=0.03, text=[tmp_path / "other.txt"])


def test_the_whole_time_is_printed_before_the_first_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    class Notes(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    def first(*_: Any, **__: Any) -> None:
        raise DataError(f"the first stage, after: {notes}")

    monkeypatch.setattr(headwater.quickstart.flow, "build_corpus", first)
    with pytest.raises(DataError, match="about 10 minutes, 4 minutes of them for pre-training"):
        headwater.quickstart.flow.quickstart(tmp_path / "out", minutes=4, progress=Notes())


def test_another_budget_or_seed_is_refused(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FolderError, match=r"minutes 0\.03, not 20\. .*--out .*out-minutes-20"):
        quickstart(flow, minutes=20)
    monkeypatch.chdir(flow)
    with pytest.raises(FolderError, match=r"--out .*out-minutes-20"):
        quickstart(Path(), minutes=20)
    with pytest.raises(FolderError, match="seed 1, not 2"):
        quickstart(flow, minutes=0.03, seed=2)


def test_a_missing_text_or_a_file_as_the_folder_is_named_first(flow: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist; expected a file or a folder with text"):
        quickstart(flow, minutes=20, text=[tmp_path / "nowhere"])
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(
        FolderError, match=r"text\.txt is a file; expected a folder to write\. Choose another --out"
    ):
        quickstart(tmp_path / "text.txt", text=[tmp_path / "text.txt"])


def test_a_refused_text_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    for existed in (False, True):
        with pytest.raises(DataError, match=r"empty\.txt"):
            quickstart(tmp_path / "out", text=[tmp_path / "empty.txt"])
        assert (tmp_path / "out").exists() == existed
        (tmp_path / "out").mkdir(exist_ok=True)


def test_no_folder_of_another_text_is_advised_to_be_removed(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("Other words entirely. " * 500)
    build_corpus([flow.parent], tmp_path / "corpus")
    with pytest.raises(FolderError, match="corpus already contains something else") as caught:
        quickstart(tmp_path, minutes=0.03, text=[tmp_path / "other.txt"])
    assert "remove" not in str(caught.value)


def test_a_small_text_continues_the_shipped_model(
    tmp_path: Path, sample_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(sample_text, encoding="utf-8")
    tokenizer = Tokenizer.train([sample_text], kind="gpt2", vocab_size=600, special_tokens=["<|endoftext|>"])
    config = preset("gpt2-pico", layers=1, width=16, heads=2, context=128, vocabulary=600)
    LanguageModel(build_model(config, seed=1), tokenizer).save(tmp_path / "shelf" / shipped.DEFAULT)
    monkeypatch.setattr("headwater.shipped.catalogue.FOLDER", tmp_path / "shelf")
    out = tmp_path / "out"
    quickstart(out, minutes=0.01, text=[tmp_path / "text.txt"])
    run = open_folder(out / "run", "run")
    assert [entry.kind for entry in run.inputs if entry.role == "model"] == ["model"]
    assert Tokenizer.load(out / "run/model").identity == tokenizer.identity
    assert not (out / "tokenizer").exists()
    assert choose_start(out / "corpus", 30_000_000) is None


def test_a_korean_text_continues_from_the_korean_model(
    tmp_path: Path, sample_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    korean = "강물은 바다로 흐르고 아이들은 웃는다. " * 400
    for name, text, size in ((shipped.DEFAULT, sample_text, 600), ("gpt2-mini-ko", korean, 280)):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        build_corpus([tmp_path / f"{name}.txt"], tmp_path / name)
        tokenizer = Tokenizer.train([text], kind="gpt2", vocab_size=size, special_tokens=["<|endoftext|>"])
        config = preset("gpt2-pico", layers=1, width=16, heads=2, vocabulary=tokenizer.vocabulary_size)
        LanguageModel(build_model(config, seed=1), tokenizer).save(tmp_path / "shelf" / name)
    monkeypatch.setattr("headwater.shipped.catalogue.FOLDER", tmp_path / "shelf")
    for name in shipped.STARTS:
        assert choose_start(tmp_path / name, 1_000) == name
    monkeypatch.chdir(tmp_path)  # the corpora have the names of the models
    assert choose_start(tmp_path / "gpt2-mini-ko", 1_000) is None


def test_a_short_text_is_told_how_much_is_needed(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"The river runs to the sea at {n}.\n" for n in range(26)))
    with pytest.raises(
        DataError, match=r"too short: \d+ B, \d+ tokens; expected about [\d.]+ kB\. Gather more text"
    ):
        quickstart(tmp_path / "out", minutes=0.1, text=[tmp_path / "text.txt"])
    assert not (tmp_path / "out" / "tokens").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02" * 100, "binary"),
        (b"Too short.", "short"),
        (b" ".join(b"%d" % number for number in range(900)), "short"),
    ],
)
def test_unusable_text_is_named_and_leaves_no_half_folder(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(DataError, match=named) as caught:
        quickstart(tmp_path / "out", minutes=0.03, text=[tmp_path / "text.txt"])
    assert "--validation" not in str(caught.value), "an option that quickstart does not have"
    assert (tmp_path / "out" / "corpus").exists() == (named == "short")  # short text is a corpus already
    assert not (tmp_path / "out" / "tokens").exists()
    assert {path.name for path in (tmp_path / "out").glob(".*")} <= {QUICKSTART}


def test_prompts_are_the_beginnings_of_held_out_text(flow: Path) -> None:
    prompts = choose_prompts(flow / "corpus")
    assert len(prompts) == len(set(prompts)) == 4
    assert all(0 < len(prompt) <= 60 for prompt in prompts)


def test_each_of_few_documents_has_a_prompt(tmp_path: Path) -> None:
    sentences = {
        "en": ("A river runs.\n\n", 600),
        "ko": ("강물은 흐른다. ", 2_000),
        "el": ("Ο ποταμός.\n\n", 1_200),
    }
    for name, (sentence, count) in sentences.items():
        text = "".join(f"{number} {sentence}" for number in range(count))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    build_corpus([tmp_path / f"{name}.txt" for name in sentences], tmp_path / "corpus")
    prompts = " ".join(choose_prompts(tmp_path / "corpus"))
    assert all(word in prompts for word in ("river", "강물은", "ποταμός"))


def test_a_text_that_ends_in_a_blank_paragraph_has_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A river runs to the sea.\n" * 200 + "\n\n \n")
    build_corpus([tmp_path / "text.txt"], tmp_path / "corpus")
    assert len(choose_prompts(tmp_path / "corpus")) == 1


def test_the_next_steps_quote_the_prompt_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(out: Path, **options: Any) -> Quickstart:
        return Quickstart(out, out / "run/model", out / "report.html", "강물은 흐른다", {})

    monkeypatch.setattr("headwater.quickstart.quickstart", done)
    out = tmp_path / "my text"
    assert main(["quickstart", "--out", str(out)]) == 0
    advice = capsys.readouterr().out
    assert f"headwater generate '강물은 흐른다' --model '{out}/run/model'" in advice
    assert f"headwater lineage '{out}/run/model'" in advice


def test_the_field_of_text_that_is_not_given_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quickstart", "--out", str(tmp_path / "out"), "--text-field", "body"]) == 2
    assert "quickstart without a FILE does not use --text-field" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
