"""Every protocol on small files in the official format, against answers worked out here by plain means."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_model import HELLASWAG, Plain, run

from headwater.cli.main import main
from headwater.corpus import Document, write_documents
from headwater.evaluation import (
    FUNCTION_WORDS,
    RequestEncoder,
    Results,
    all_tasks,
    evaluate,
    read_examples,
)
from headwater.evaluation.tasks import lambada
from headwater.inference import load
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

PASSAGES = [
    "the river flows north to the lake",
    "a stream flows slowly to the river",
    "of the lake very slowly north",
]


@pytest.mark.parametrize("reading", ["last-token", "whole-word"])
def test_lambada_scores_the_last_word(world: Any, tmp_path: Path, plain: Plain, reading: str) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in PASSAGES)
    results, records = run(world, tmp_path, f"lambada.openai.{reading}", {"lambada_test.jsonl": lines})
    totals = []
    for text, record in zip(PASSAGES, records, strict=True):
        context, _, word = text.rpartition(" ")
        scores = plain.tokens(context, f" {word}")
        totals.append(scores[-1] if reading == "last-token" else sum(scores))
        assert record["log_probability"] == pytest.approx(totals[-1], abs=1e-4)
    by_metric = {result.metric: result.value for result in results.results}
    assert by_metric["perplexity"] == pytest.approx(math.exp(-np.mean(totals)), rel=1e-4)


def test_the_stop_word_filter_rejects_whole_words(
    world: Any, tmp_path: Path, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["river", "stream", "lake", "the", "a", "of", "flows", "slowly", "north", "very", "to"]
    contexts = [" ".join(np.random.default_rng(seed).choice(words, 6)) for seed in range(24)]
    # Half of the words that this model writes count as function words.
    written = {first_other_word(plain, plain.tokenizer.encode(context))[0] for context in contexts}
    forms = sorted(written - {""})[::2]
    monkeypatch.setattr(lambada, "_FORMS", set(forms))
    monkeypatch.setattr(lambada, "_BEGINNINGS", {form[:end] for form in forms for end in range(len(form) + 1)})
    filtered = {context: first_other_word(plain, plain.tokenizer.encode(context)) for context in contexts}
    asked = {context: found for context, found in filtered.items() if found[0]}  # not punctuation
    passages = [f"{context} {word}" for context, (word, _, _) in asked.items()]
    files = {"lambada_test_plain_text.txt": "\n".join(passages)}
    _, records = run(world, tmp_path, "lambada.original.whole-word.stop-words", files)
    right_after_a_rejection = 0
    for (context, (word, taken, excluded)), record in zip(asked.items(), records, strict=True):
        ids, target = plain.tokenizer.encode(context), plain.tokenizer.encode(f" {word}")
        right = taken == target[0] and all(
            likeliest(plain, [*ids, *target[:place]], []) == token for place, token in enumerate(target) if place
        )
        assert record["accuracy"] == float(right)
        right_after_a_rejection += right and bool(excluded)
    assert right_after_a_rejection


def first_other_word(plain: Plain, ids: list[int]) -> tuple[str, int, list[int]]:
    """The likeliest word that is not a function word, its first token, and the first tokens rejected before it."""
    excluded: list[int] = []
    while True:
        taken = likeliest(plain, ids, excluded)
        written = [taken]
        while len(written) < 9:
            written.append(likeliest(plain, [*ids, *written], []))
        rest = re.split("[ \n]", plain.tokenizer.decode(written[1:]))[0]
        word = lambada.first_word(plain.tokenizer.decode(written[:1]) + rest)
        if word not in FUNCTION_WORDS:
            return word, taken, excluded
        excluded.append(taken)


def likeliest(plain: Plain, ids: list[int], excluded: list[int]) -> int:
    with torch.no_grad():
        logits = plain.model(torch.tensor([ids]))[0, -1]
    logits[excluded] = -torch.inf
    return int(logits.argmax())


@pytest.mark.parametrize(
    ("protocol", "name", "text", "units", "unit"),
    [
        (
            "wikitext-2.tokens",
            "wikitext-2/wiki.test.tokens",
            " \n = River = \n \n The river flows . \n",
            7 + 4,
            "nats",
        ),
        ("1bw.detokenized", "news.en.heldout-00000-of-00050", "The river flows .\nIt doesn 't .\n", 8 + 2, "nats"),
        ("text8.characters", "text8", "the river flows slowly to the lake", 34, "bits"),
        ("enwik8.bytes", "enwik8", "강물 flows <page>", 19, "bits"),
    ],
)
def test_streams_count_the_original_units(
    world: Any,
    tmp_path: Path,
    plain: Plain,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    name: str,
    text: str,
    units: int,
    unit: str,
) -> None:
    # Of enwik8 and text8, the end of the file is scored.
    if unit == "bits":
        described = all_tasks()[protocol].described.model_copy(update={"last_bytes": len(text.encode())})  # type: ignore[attr-defined]
        monkeypatch.setattr(all_tasks()[protocol], "described", described)
    results, _ = run(world, tmp_path, protocol, {name: ("the training part" if unit == "bits" else "") + text})
    (result,) = results.results
    written = {"1bw.detokenized": "The river flows.\nIt doesn't.\n"}.get(protocol, text)
    nats = -sum(plain.tokens("", written))
    assert result.details["units"] == units
    expected = math.exp(nats / units) if unit == "nats" else nats / units / math.log(2)
    assert result.value == pytest.approx(expected, rel=1e-4)
    assert result.settings == {"window": 48, "stride": 24}


def test_a_damaged_file_is_named_and_the_others_are_scored(world: Any, tmp_path: Path) -> None:
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "the river"}\n{"text": "cut', encoding="utf-8")
    (tmp_path / "hellaswag_val.jsonl").write_text(HELLASWAG, encoding="utf-8")
    protocols = ["lambada.openai.whole-word", "hellaswag.lm-eval.total"]
    results = evaluate(world.model, protocols, tmp_path, tmp_path / "out")
    assert [result.protocol for result in results.results] == protocols[1:]
    assert "lambada_test.jsonl line 2" in results.skipped[0].reason


def test_an_empty_example_is_left_out_and_counted(world: Any, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ("", "north", *PASSAGES))
    results, _ = run(world, tmp_path, "lambada.openai.whole-word", {"lambada_test.jsonl": lines})
    assert results.results[0].count == 3
    assert results.skipped[0].examples == 2


def test_an_example_beyond_the_context_is_omitted_and_counted(world: Any, tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}) for text in ("the river " + "xq" * 100, *PASSAGES)]
    (tmp_path / "lambada_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    results = evaluate(world.model, ["lambada.openai.whole-word"], tmp_path, tmp_path / "out")
    assert results.results[0].count == 3
    assert results.skipped[0].examples == 1
    assert "longer than the model's context" in results.skipped[0].reason


def test_windows_score_every_token_once_after_enough_others(world: Any) -> None:
    tokenizer = Tokenizer.load(world.model)
    for count in (1, 5, 47, 48, 49, 100, 333):
        ids = list(range(1, count + 1))
        for window, stride in ((48, 48), (48, 16), (10, 3)):
            asked = RequestEncoder(tokenizer, 48, window, stride).windows(ids)
            assert [token for request in asked for token in request.continuation] == ids
            for request in asked[1:]:
                assert len(request.context) + len(request.continuation) == window + 1
                assert len(request.continuation) <= stride


@pytest.mark.parametrize("context", ["", "the ri", "the river", "the river ", "the river\n\n"])
@pytest.mark.parametrize("continuation", [" flows", "flows", "ver flows", "\n"])
def test_the_library_and_evaluate_score_the_same_tokens(world: Any, context: str, continuation: str) -> None:
    lm = load(world.model)
    request = RequestEncoder(lm.tokenizer, 48).pair(context, continuation)
    assert lm.scorer.encode_pairs([(context, continuation)]) == [(list(request[0]), list(request[1]))]


def test_a_second_score_leaves_out_what_the_training_corpus_has(world: Any, tmp_path: Path) -> None:
    passages = [
        "the river flows north of the lake to a stream",
        "a lake of the stream flows very slowly north to it",
    ]
    (tmp_path / "lambada_test.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in passages), encoding="utf-8"
    )
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id="0" * 32, text=f"It is said that {passages[0]}.")], work)
    tasks = ["lambada.openai.whole-word", "lambada.openai.whole-word.stop-words"]
    results = evaluate(world.model, tasks, tmp_path, tmp_path / "out", overlap=tmp_path / "corpus")
    for task, figure in zip(tasks, (results.results[0], results.results[-1]), strict=True):
        first, second = read_examples(tmp_path / "out", task)
        assert (first["overlap"], second["overlap"]) == (1.0, 0.0)
        assert figure.details["overlap"] == {
            "mean": 0.5,
            "examples": 1,
            "judged": 2,
            "cannot be judged": 0,
            "value without": second["accuracy"],
            "stderr without": None,
        }


def test_overlap_of_a_choice_is_that_of_question_and_right_answer(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training text has the first three rows word for word; the last one is too short for an 8-gram."""
    rows = [
        {
            "q": f"Who saw the river number {name} flow to the lake?",
            "a": answer,
            "b": "nobody at all",
            "right": "A",
        }
        for name, answer in (("one", "Ann"), ("two", "Bo"), ("three", "Cy"), ("four", "Di"))
    ]
    rows.append({"q": "Who?", "a": "Ann", "b": "Bo", "right": "A"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    described = 'kind = "choice"\nbenchmark = "own"\nfiles = ["rows.jsonl"]\ncontext = "{q}"\n'
    described += 'answers = ["a", "b"]\nlabel = "right"\nreadings = ["total"]\n'
    (tmp_path / "own.toml").write_text(described, encoding="utf-8")
    # Of the fourth row the training text has the answer, but not the question.
    texts = [f"{row['q']} {row['a']}" for row in rows[:3]] + ["Di and Ann and Bo and Cy went home late"]
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id=f"{n:032x}", text=text) for n, text in enumerate(texts)], work)
    options = ["--model", str(world.wide), "--tasks", str(tmp_path / "own.toml"), "--data", str(tmp_path)]
    options += ["--overlap", str(tmp_path / "corpus"), "--out", str(tmp_path / "out")]
    assert main(["evaluate", *options]) == 0
    records = list(read_examples(tmp_path / "out", "own.total"))
    assert [record["overlap"] for record in records] == [1.0, 1.0, 1.0, pytest.approx(0.0, abs=0.5), None]
    (result,) = Results.read(tmp_path / "out").results
    overlap = result.details["overlap"]
    assert (overlap["examples"], overlap["judged"], overlap["cannot be judged"]) == (3, 4, 1)
    assert overlap["value without"] == records[3]["accuracy"]
    assert "without 3 overlapping, 1 too short to be judged" in capsys.readouterr().out
