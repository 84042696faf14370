"""tools/ship.py: a card has the numbers of the files next to it, and nothing of the machine that made it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import gather
import labelled
import model_card
import pytest
import ship

from headwater.errors import HeadwaterError
from headwater.reading import read_json

ROOT = Path(__file__).parents[1]
LIST = """
[[part]]
name = "stories"
group = "toys"
title = "Stories"
licence = "CC0-1.0"
origin = "https://example.org"
folder = "stories"
pattern = "*.txt"
"""


@pytest.mark.slow
def test_a_run_becomes_a_model_with_its_card(
    tmp_path: Path, sample_text: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.corpus import build_corpus
    from headwater.inference import load
    from headwater.pretraining import PretrainConfig, pack, pretrain
    from headwater.storage import open_folder
    from headwater.tokenizer import train_tokenizer

    place = tmp_path / "toys" / "stories" / "one.txt"
    place.parent.mkdir(parents=True)
    place.write_text(sample_text, encoding="utf-8")
    build_corpus([tmp_path / "toys"], tmp_path / "corpus")
    train_tokenizer([tmp_path / "corpus"], tmp_path / "tokenizer", vocab_size=300)
    tokens = tmp_path / "tokens"
    pack(tmp_path / "corpus", tmp_path / "tokenizer", tokens, 0.1)
    recipe = {"preset": "gpt2-pico", "steps": 4, "batch_size": 4, "validate_every": 2, "checkpoint_every": 4}
    config = PretrainConfig.build(recipe, {"model": {"layers": 1, "width": 16, "heads": 2}, "context": 128})
    pretrain(config, tokens, tmp_path / "first")
    again = PretrainConfig.build(recipe, {"context": 128, "init_from": str(tmp_path / "first" / "model")})
    pretrain(again, tokens, tmp_path / "run")
    texts = tmp_path / "toy.toml"
    work, shelf = tmp_path / "work", tmp_path / "shelf"
    texts.write_text(LIST.replace("stories", "other"))
    with pytest.raises(SystemExit, match="states no licence for"):
        ship.ship(tmp_path / "run", "toy", texts, [data], work, shelf, 3, 1)
    texts.write_text(LIST)
    monkeypatch.setattr(labelled, "ROWS", 40)
    monkeypatch.setattr(labelled, "SEEDS", (1, 2))
    out = ship.ship(tmp_path / "run", "toy", texts, [data], work, shelf, 3, 1, ["rte"])
    assert open_folder(out, "model").files.keys() >= {
        "README.md",
        "about.json",
        "results.json",
        "model.safetensors",
    }
    page = (out / "README.md").read_text(encoding="utf-8")
    assert page == model_card.card(read_json(out / "about.json"), read_json(out / "results.json"))
    everything = page + "".join((out / f"{name}.json").read_text() for name in ("about", "results", "headwater"))
    for place in (tmp_path, ROOT, data):
        assert str(place) not in everything
    assert load(out).generate("one", max_tokens=2, seed=1) is not None
    assert read_json(out / "about.json")["run"]["updates"] == 8  # of both runs
    results = json.loads((out / "results.json").read_text())["results"]
    assert {result["protocol"] for result in results} >= {"heldout.bits-per-byte", "lambada.openai.whole-word"}
    assert all(model_card.number(result["value"]) in page for result in results)
    (tuned,) = read_json(out / "results.json")["fine_tuned"]
    assert (tuned["name"], tuned["rows"], tuned["tested"], tuned["seeds"]) == ("rte", 40, 3, 2)
    assert "- rte: tested on the development part" in page
    renewed = ship.renew(out, [data], work / "again", tmp_path / "next", 3, ["cola"])
    assert [entry["name"] for entry in read_json(renewed / "results.json")["fine_tuned"]] == ["cola", "rte"]
    whole = ship.renew(renewed, [data], work / "whole", tmp_path / "all rows", 3, [], all_rows=["cola"])
    scores = read_json(whole / "results.json")["fine_tuned"]
    assert [(one["name"], one["seeds"]) for one in scores] == [("cola", 2), ("cola", 1), ("rte", 2)]
    assert scores[0]["rows"] == 40 < scores[1]["rows"]
    with pytest.raises(SystemExit, match="--all-rows needs more than"):
        monkeypatch.setattr(labelled, "ROWS", 1 << 20)
        ship.renew(renewed, [data], work / "whole", tmp_path / "all rows", 3, [], all_rows=["rte"])
    assert read_json(renewed / "results.json")["results"] == read_json(out / "results.json")["results"]
    assert (
        open_folder(renewed, "model").files["model.safetensors"]
        == open_folder(out, "model").files["model.safetensors"]
    )
    pack(tmp_path / "corpus", tmp_path / "tokenizer", tmp_path / "other", 0.3)
    with pytest.raises(SystemExit, match="is not the text of toy"):
        ship.renew(out, [data], work, tmp_path / "third shelf", sets=[], tokens=tmp_path / "other")
    measured = ship.renew(out, [data], work / "more", tmp_path / "third shelf", sets=[], tokens=tokens)
    found = json.loads((work / "more" / "toy-held-out" / "results.json").read_text())["results"]
    assert read_json(measured / "results.json")["results"] == [*found, *results[1:]]
    # A later run continues the model that ships, without the runs that made it.
    third = PretrainConfig.build(recipe, {"context": 128, "init_from": str(renewed)})
    pretrain(third, tokens, tmp_path / "third")
    start, runs = ship.chain(tmp_path / "third")
    arguments = (texts, tokens, tmp_path / "corpus")
    about = ship.describe("toy", start, runs, *arguments)
    assert runs == [tmp_path / "third"]
    assert about["run"]["updates"] == 12
    assert len(about["run"]["commands"]) == 3
    assert [point["updates"] for point in about["curve"]] == [2, 4, 6, 8, 10, 12]
    assert about["run"]["other_text"] is None
    start["text"]["identity"] = "0" * 64
    about = ship.describe("toy", start, runs, *arguments)
    assert about["run"]["other_text"] == {"corpus": "0" * 64, "tokens": start["run"]["tokens"], "updates": 8}
    card = model_card.card({**about, "samples": []}, read_json(renewed / "results.json"))
    assert "The first 8 updates read" in card
    assert f"an earlier version of this text. This version is corpus {about['text']['identity'][:12]}." in card
    start["text"]["parts"][0]["title"] = "Lost"
    with pytest.raises(SystemExit, match="lacks Lost, which toy was trained on"):
        ship.describe("toy", start, runs, *arguments)


def test_each_text_of_the_korean_set_is_in_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{word} {number},-,{word}\r" for number in range(60) for word in ("good", "bad")]
    (tmp_path / "ChatbotData.csv").write_text("\n".join(["Q,A,label", *rows, *rows]) + "\n", newline="")
    monkeypatch.setattr(labelled, "ROWS", 80)
    found = labelled.chatbot([tmp_path])
    texts = [{row.segments for row in part} for part in (found.train, found.tests["test"])]
    assert [len(part) for part in texts] == [80, 40]
    assert texts[0].isdisjoint(texts[1])
    assert {row.label for row in found.train} == {"good", "bad"}


def test_a_card_names_scores_that_equal_guessing() -> None:
    about = {"model": {"context": 256}, "text": {"validation": {"bytes": 3_000, "tokens": 1_000}}}
    entry = {"stderr": 0.02, "chance": 0.5}
    results = {
        "results": [
            {"protocol": "guessed", "value": 0.52, **entry},
            {"protocol": "known", "value": 0.60, **entry},
            {"protocol": "perplexity", "value": 90.0, "stderr": 2.0, "chance": None},
        ]
    }
    last = model_card.limits(about, results)[-1]
    assert "guessed" in last
    assert "known" not in last


def test_a_card_is_of_the_language_of_its_text(tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text(LIST)
    assert gather.read_language(listed) == "en"
    listed.write_text(f'language = "ko"\n{LIST}')
    assert gather.read_language(listed) == "ko"
    about = json.loads((ship.SHELF / "gpt2-mini" / "about.json").read_text())
    about["text"]["language"] = "ko"
    results = json.loads((ship.SHELF / "gpt2-mini" / "results.json").read_text())
    tuned = {
        "rows": 2_000,
        "epochs": 8,
        "learning_rate": 7e-4,
        "tested": 9_000,
        "metric": "f1",
        "value": 0.812,
        "deviation": 0.01,
        "seeds": 3,
    }
    tuned |= {"baseline": 0.802, "baseline_name": "TF-IDF", "remarks": []}
    results["fine_tuned"] = [{"name": "Pairs", **tuned}, {"name": "Others", **tuned, "value": 0.8}]
    page = model_card.card(about, results)
    assert "language: ko" in page
    assert "English" not in page.split("## Data")[1].split("| part")[0]
    assert "no language but Korean" in page
    assert "| Pairs | 2,000 | 8 | 0.0007 | 9,000 | f1 | 0.812 | 0.010 | 3 | TF-IDF | 0.802 |" in page
    assert "above the baseline on 1 of 2 sets" in page
    assert "n-gram model" in page


def test_a_card_names_the_tokenizer_that_packed_the_text(tmp_path: Path, sample_text: str) -> None:
    from headwater.corpus import build_corpus
    from headwater.pretraining import pack
    from headwater.storage import open_folder

    (tmp_path / "one.txt").write_text(sample_text, encoding="utf-8")
    build_corpus([tmp_path / "one.txt"], tmp_path / "corpus")
    pack(tmp_path / "corpus", ship.SHELF / "gpt2-mini", tmp_path / "tokens", 0.1)
    about = json.loads((ship.SHELF / "gpt2-mini" / "about.json").read_text())
    results = json.loads((ship.SHELF / "gpt2-mini" / "results.json").read_text())
    about["tokenizer"]["model"] = about["run"]["other_text"] = None
    assert "learned from the same text" in model_card.card(about, results)
    about["tokenizer"]["model"] = ship.tokenizer_model(open_folder(tmp_path / "tokens", "tokens"))
    assert "taken from an earlier gpt2-mini. The text is corpus" in model_card.card(about, results)


def test_the_repository_that_lacks_a_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "check_out", lambda part, repositories, scratch: scratch)
    part = {"name": "posts", "group": "toys", "title": "Posts", "licence": "CC0-1.0", "pattern": "*.md"}
    part |= {"origin": "https://example.org", "repository": "owner/posts", "commit": "0" * 40}
    with pytest.raises(HeadwaterError, match=r'no file "\*\.md" in owner/posts'):
        gather.gather(gather.Part.build(part), tmp_path, tmp_path, tmp_path)


def test_a_command_loses_the_paths_of_its_machine() -> None:
    command = "headwater pretrain /home/somebody/recipes/mini.toml --tokens tokens --set steps=3"
    assert ship.plain_command(command) == "headwater pretrain mini.toml --tokens tokens --set steps=3"


def test_a_curve_keeps_its_end() -> None:
    points = [{"updates": number} for number in range(1, 50)]
    kept = model_card.thinned(points)
    assert kept[-1] == points[-1]
    assert len(kept) <= 15


def test_a_text_that_is_gone_or_changed_is_refused_by_name(tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text(LIST)
    (part,) = gather.read_list(listed)
    with pytest.raises(HeadwaterError, match=r"stories has no file \"\*.txt\".*example.org"):
        gather.gather(part, tmp_path, tmp_path, tmp_path / "out")
    (tmp_path / "stories").mkdir()
    (tmp_path / "stories" / "one.txt").write_text("One.")
    found = gather.gather(part, tmp_path, tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "toys" / "stories" / "one.txt").read_text() == "One."
    same = part.model_copy(update={"sha256": found["sha256"]})
    assert gather.gather(same, tmp_path, tmp_path, tmp_path / "again") == found
    (tmp_path / "stories" / "one.txt").write_text("Two.")
    with pytest.raises(HeadwaterError, match="stories is another text"):
        gather.gather(same, tmp_path, tmp_path, tmp_path / "changed")
    assert not (tmp_path / "changed").exists()
    (tmp_path / "stories" / "one.txt").rename(tmp_path / "stories" / "two.txt")
    gather.gather(part, tmp_path, tmp_path, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "toys").rglob("*")] == ["stories", "two.txt"]
    listed.write_text(LIST.replace('licence = "CC0-1.0"', ""))
    with pytest.raises(HeadwaterError, match="licence"):
        gather.read_list(listed)


@pytest.mark.parametrize("content", [None, "part = [", 'language = "en"', "[part]\nname = 1"])
def test_what_is_not_a_text_list_is_one_message(
    tmp_path: Path, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "list.toml"
    if content is not None:
        listed.write_text(content)
    places = [f"--{name}={tmp_path}" for name in ("data", "packages", "out")]
    monkeypatch.setattr("sys.argv", ["gather.py", str(listed), *places])
    with pytest.raises(SystemExit, match=r"list\.toml"):
        gather.main()


def test_a_part_is_read_from_a_commit_of_a_repository(tmp_path: Path) -> None:
    clone = tmp_path / "repositories" / "someone" / "docs"
    (clone / "ko").mkdir(parents=True)
    (clone / "ko" / "one.md").write_text("---\ntitle: One\n---\nSee [the page](https://example.org).\n")
    (clone / "ko" / "two.cnxml").write_text("<para>\n</para><para>\n</para>\n<para>Salt &amp; water</para>\n")
    (clone / "rows.csv").write_text('Id,Text\n1,"Third, ""and"" last."\n')
    (clone / "rows").write_text('{"text": "First."}\n{"text": " "}\n{"text": "Sec\u2028ond."}\n', encoding="utf-8")
    git = ["git", "-C", str(clone), "-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "docs"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (clone / "ko" / "one.md").write_text("Changed after the commit.")
    common = {"group": "toys", "title": "Docs", "licence": "CC0-1.0", "origin": "https://example.org"}
    common |= {"repository": "someone/docs", "commit": commit}
    remove = [r"\A---\n.*?\n---\n", r"\[(?=[^\]\n]*\]\()", r"\]\([^)\n]*\)"]
    pages = gather.Part.build(common, {"name": "pages", "pattern": "ko/*.md", "remove": remove})
    rows = gather.Part.build(common, {"name": "rows", "pattern": "rows", "field": "text"})
    places = (tmp_path, tmp_path, tmp_path / "out", tmp_path / "repositories")
    assert gather.gather(pages, *places)["files"] == 1
    assert (tmp_path / "out" / "toys" / "pages" / "ko" / "one.md.txt").read_text() == "See the page.\n"
    gather.gather(rows, *places)
    assert (tmp_path / "out" / "toys" / "rows" / "rows.txt").read_text() == "First.<|endoftext|>Sec\u2028ond."
    gather.gather(gather.Part.build(common, {"name": "csv", "pattern": "rows.csv", "field": "Text"}), *places)
    assert (tmp_path / "out" / "toys" / "csv" / "rows.csv.txt").read_text() == 'Third, "and" last.'
    gather.gather(gather.Part.build(common, {"name": "xml", "pattern": "*.cnxml", "remove": ["<[^>]+>"]}), *places)
    assert (tmp_path / "out" / "toys" / "xml" / "ko" / "two.cnxml.txt").read_text() == "\n\nSalt & water\n"
    with pytest.raises(HeadwaterError, match='rows in rows has no text "title"'):
        gather.gather(rows.model_copy(update={"field": "title"}), *places)
    for changed in ({"repository": "someone/other"}, {"commit": "0" * 40}):
        with pytest.raises(HeadwaterError, match=r"has no clone of .*git clone --bare"):
            gather.gather(pages.model_copy(update=changed), *places)


def test_every_part_of_the_lists_states_licence_origin_and_hash() -> None:
    for path in (ROOT / "recipes" / "texts").glob("*.toml"):
        assert all(part.licence and part.origin and part.sha256 for part in gather.read_list(path))
