"""Every protocol on small files in the official format, against answers worked out here by plain means."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import beta
from sklearn.metrics import matthews_corrcoef

from headwater.corpus import Document, write_documents
from headwater.errors import DataError, ResourceError
from headwater.evaluation import (
    FUNCTION_WORDS,
    TASKS,
    DataFiles,
    Example,
    Figure,
    Generated,
    RequestEncoder,
    Scored,
    evaluate,
    published,
    read_examples,
)
from headwater.evaluation.agreement import Bleu, against_people, exact_match, rouge, word_f1
from headwater.evaluation.paper_values import PLACES
from headwater.evaluation.tasks import lambada
from headwater.evaluation.tasks import sentences as single_sentences
from headwater.evaluation.tasks.cbt import read_stories
from headwater.evaluation.tasks.generation import first_sentence, fitted
from headwater.evaluation.tasks.pronouns import read_blocks
from headwater.evaluation.tasks.sentences import best_threshold
from headwater.evaluation.tasks.summaries import sentences
from headwater.inference import load
from headwater.model import load_model
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer


class Plain:
    """The model asked one forward pass at a time."""

    def __init__(self, folder: Path) -> None:
        self.model, self.tokenizer = load_model(folder), Tokenizer.load(folder)
        self.context = self.model.config.context

    def tokens(self, context: str, continuation: str) -> list[float]:
        """Log-probability of each token of the continuation."""
        head = self.tokenizer.encode(context) or [self.tokenizer.end_of_text]
        whole = self.tokenizer.encode(context + continuation)
        tail = whole[len(head) :] if context else whole
        assert not context or whole[: len(head)] == head
        ids = [*head, *tail][-self.context - 1 :]
        with torch.no_grad():
            rows = self.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        return [float(rows[i - len(tail), t]) for i, t in enumerate(tail)]


@pytest.fixture(scope="module")
def plain(world: Any) -> Plain:
    return Plain(world.model)


def run(world: Any, tmp_path: Path, protocol: str, files: dict[str, str]) -> tuple[Any, list[dict[str, Any]]]:
    data = tmp_path / "data"
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text, encoding="utf-8")
    results = evaluate(world.model, [protocol], data, tmp_path / "out")
    assert not [entry for entry in results.skipped if entry.examples is None], results.skipped
    return results, list(read_examples(tmp_path / "out", protocol))


def test_every_published_value_has_an_explicit_protocol() -> None:
    assert len(TASKS) > 40
    assert all("." in name for name in TASKS)
    for protocol, metrics in PLACES.items():
        assert set(metrics) <= {metric.name for metric in TASKS[protocol].metrics}
        assert all(published(protocol, metric) for metric in metrics)


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
        described = TASKS[protocol].described.model_copy(update={"last_bytes": len(text.encode())})  # type: ignore[attr-defined]
        monkeypatch.setattr(TASKS[protocol], "described", described)
    results, _ = run(world, tmp_path, protocol, {name: ("the training part" if unit == "bits" else "") + text})
    (result,) = results.results
    written = {"1bw.detokenized": "The river flows.\nIt doesn't.\n"}.get(protocol, text)
    nats = -sum(plain.tokens("", written))
    assert result.details["units"] == units
    expected = math.exp(nats / units) if unit == "nats" else nats / units / math.log(2)
    assert result.value == pytest.approx(expected, rel=1e-4)
    assert result.settings == {"window": 48, "stride": 24}


STORY = "".join(f"{i} The river {i} flows to the lake .\n" for i in range(1, 21))
CANDIDATES = "lake|river|stream|north|boat|tree|very|slowly|way|day"


def test_cbt_scores_the_candidate_and_the_rest_of_the_sentence(world: Any, tmp_path: Path, plain: Plain) -> None:
    text = STORY + f"21 The XXXXX flows north .\tstream\t\t{CANDIDATES}\n\n"
    _, (record,) = run(world, tmp_path, "cbt.common-nouns.tokens", {"cbtest_CN_valid_2000ex.txt": text})
    context = "\n".join(line.partition(" ")[2] for line in STORY.splitlines())
    values = [sum(plain.tokens(f"{context}\nThe", f" {word} flows north .")) for word in CANDIDATES.split("|")]
    assert record["chosen"] == int(np.argmax(values))
    assert record["label"] == 2


def test_a_childrens_book_that_was_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cbtest_CN_valid_2000ex.txt"
    for text, where in (
        (STORY[:200], "ends after"),
        (STORY, "line 21: a story ends after 20"),
        (STORY + "\n" + STORY, "line 21: a story ends after 20"),
        ("1 a\n3 b\n", "line 2"),
        (STORY + "21 no blank\ta\t\ta|b\n", "line 21"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=where):
            read_stories(path)


SCHEMAS = """The lake met the river, but  [MASK]  flows.
[MASK]
The lake ,The river
The river

The stream met the lake, breaking  [MASK]  silence.
[MASK]
The lake ,Joan
Joan
"""


@pytest.mark.parametrize("reading", ["full", "partial"])
def test_winograd_replaces_the_pronoun_by_candidates(
    world: Any, tmp_path: Path, plain: Plain, reading: str
) -> None:
    _, records = run(world, tmp_path, f"wsc273.{reading}", {"wsc273.txt": SCHEMAS})
    before, after = "The lake met the river, but", " flows."
    for record, candidates, start, rest in (
        (records[0], ["the lake", "the river"], before + " ", after),
        (records[1], ["the lake's", "Joan's"], "The stream met the lake, breaking ", " silence."),
    ):
        values = [
            sum(plain.tokens("", f"{start}{c}{rest}") if reading == "full" else plain.tokens(f"{start}{c}", rest))
            for c in candidates
        ]
        found = [math.fsum(answer["log_probabilities"]) for answer in record["answers"]]
        assert found == pytest.approx(values, abs=1e-4)
        assert record["chosen"] == int(np.argmax(values))


@pytest.mark.parametrize(
    ("benchmark", "chosen"),
    [("cbt", 1), ("wsc273", 1), ("pdp", 1), ("dprd", 0), ("race", 0), ("story-cloze", 0), ("sst-2", 1)],
)
def test_each_benchmark_chooses_by_the_total_or_by_the_mean(world: Any, benchmark: str, chosen: int) -> None:
    answers = [Scored((-1.0,) * 3, (False,) * 3), Scored((-2.5,), (False,))]
    encoder = RequestEncoder(Tokenizer.load(world.model), 48)
    for task in TASKS.values():
        if task.benchmark == benchmark:
            assert task.score(Example("1", {"label": 0}), answers, encoder)["chosen"] == chosen, task.protocol


def test_a_damaged_schema_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wsc273.txt"
    for text in (
        "A sentence with [MASK].\n[MASK]\na,b\n",
        "A sentence.\n[MASK]\na,b\na\n",
        "The [MASK].\n[MASK]\na,b\nc\n",
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="line 1"):
            read_blocks(path)


def test_race_takes_the_answer_with_the_highest_mean(world: Any, tmp_path: Path, plain: Plain) -> None:
    answers = ["to the lake", "north", "very slowly north to the river", "a stream"]
    article = {"article": "The river flows.", "questions": ["Where to?"], "options": [answers], "answers": ["C"]}
    files = {"RACE/test/high/1.txt": json.dumps(article), "RACE/test/high/2.txt": json.dumps(article)}
    results, records = run(world, tmp_path, "race-high.mean", files)
    values = [float(np.mean(plain.tokens("The river flows.\nWhere to?\n", answer))) for answer in answers]
    means = [np.mean(answer["log_probabilities"]) for answer in records[0]["answers"]]
    assert means == pytest.approx(values, abs=1e-4)  # the answer's own tokens, without the line break
    assert [record["chosen"] for record in records] == [int(np.argmax(values))] * 2
    assert results.results[0].chance == 0.25


def test_cola_tunes_its_threshold_on_the_training_sentences(
    world: Any, tmp_path: Path, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = [("the river flows slowly", 1), ("slowly the of of", 0), ("a lake", 1), ("to to to very", 0)]
    test = [("the stream flows", 1), ("of of a the", 0), ("north", 1)]
    parts = {
        "in_domain_train": [*train, ("a lake", 0)],  # one more than it is tuned on
        "in_domain_dev": test[:2],
        "out_of_domain_dev": test[2:],
    }
    files = {
        f"cola/{name}.tsv": "".join(f"x\t{label}\t\t{text}\n" for text, label in rows)
        for name, rows in parts.items()
    }
    monkeypatch.setattr(single_sentences, "_TUNED_ON", len(train))
    results, _ = run(world, tmp_path, "cola.mean-log-probability", files)
    means = {text: float(np.mean(plain.tokens("", text))) for text, _ in train + test}
    threshold = results.results[0].details["threshold"]
    chosen, labels = [means[text] > threshold for text, _ in test], [label == 1 for _, label in test]
    assert results.results[0].value == pytest.approx(matthews_corrcoef(labels, chosen))
    assert results.results[1].value == pytest.approx(np.mean(np.equal(chosen, labels)))
    known = [label == 1 for _, label in train]
    best = max(matthews_corrcoef(known, [means[t] > x for t, _ in train]) for x in means.values())
    assert results.results[0].details["matthews on the tuning sentences"] == pytest.approx(best)


def test_cola_counts_each_sentence_of_two_releases_once(tmp_path: Path, world: Any) -> None:
    row = "x\t{}\t\t{}\n".format
    for name, text in {
        "CoLA/train.tsv": row(1, "a lake"),
        "CoLA/dev.tsv": row(1, "the river flows") + row(0, "of of"),
        "cola/in_domain_train.tsv": row(1, "a lake"),
        "cola/in_domain_dev.tsv": row(1, "the river flows"),
        "cola/out_of_domain_dev.tsv": row(0, "of of"),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    task = TASKS["cola.mean-log-probability"]
    for folder in (tmp_path, tmp_path / "CoLA", tmp_path / "cola"):
        examples = task.read(DataFiles([folder]).locate(task.sources), world.model)
        assert [one.text for one in examples] == ["the river flows", "of of", "a lake"]


def test_sst2_needs_its_label_words_whole(world: Any, tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nthe river flows\t1\n", encoding="utf-8")
    with pytest.raises(ResourceError, match=r"no protocol could be scored: sst-2\.very.*'negative'"):
        evaluate(world.model, ["sst-2.very"], tmp_path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["SST-2"]


def test_translations_answers_and_conversations_are_written(world: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for language in ("en", "fr"):
        text = "".join(f"The river {language} .\n" for _ in range(8))
        (data / f"newstest2014.en-fr.{language}").write_text(text, encoding="utf-8")
    rows = [{"question": "where is the lake", "answer": ["north", "the north"]}] * 8
    (data / "NQ-open.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    turn = [{"input_text": "to the lake", "turn_id": 1}, {"input_text": "very", "turn_id": 2}]
    story = {
        "id": "s",
        "source": "wikipedia",
        "story": "The river flows.",
        "questions": turn,
        "answers": turn,
        "additional_answers": {"0": [{"input_text": "north", "turn_id": 1}, turn[1]]},
    }
    (data / "coqa-dev-v1.0.json").write_text(json.dumps({"data": [story]}), encoding="utf-8")
    article = {
        "id": "a",
        "article": "One flows. Two flows. Three flows. Four.",
        "highlights": "One flows.\nTwo flows.",
    }
    (data / "cnndm_test.jsonl").write_text(json.dumps(article) + "\n", encoding="utf-8")

    names = ["wmt14", "natural-questions", "coqa", "cnndm"]
    results = evaluate(world.wide, names, data, tmp_path / "out")
    assert not results.skipped
    assert {result.protocol.partition(".")[0] for result in results.results} == set(names)
    of_domain = {result.metric: result.value for result in results.results if result.protocol == "coqa.greedy"}
    assert of_domain["f1, wikipedia"] == of_domain["f1"]
    model = Plain(world.wide)

    prompt = "The river en . = The river fr .\n" * 5 + "The river en . ="
    written = greedy(model, prompt, 96, "\n")
    records = list(read_examples(tmp_path / "out", "wmt14.en-fr"))
    assert len(records) == 3
    assert records[0]["text"] == first_sentence(written)
    prompt = "Q: where is the lake?\nA: north\n\n" * 5 + "Q: where is the lake?\nA:"
    (first, *others) = read_examples(tmp_path / "out", "natural-questions.exact-match")
    assert len(others) == 2, "the five examples of the prompt are not scored"
    assert first["text"] == greedy(model, prompt, 32, "\n").strip()
    assert 0 < first["confidence"] <= 1
    prompt = "The river flows.\n\nQ: to the lake\nA: to the lake\nQ: very\nA:"
    assert (
        list(read_examples(tmp_path / "out", "coqa.greedy"))[1]["text"] == greedy(model, prompt, 32, "\n").strip()
    )
    (lead,) = read_examples(tmp_path / "out", "cnndm.lead-3")
    assert lead["text"] == "One flows.\nTwo flows.\nThree flows."


def greedy(model: Plain, prompt: str, count: int, stop: str) -> str:
    """The likeliest token each time, up to `stop`."""
    ids = model.tokenizer.encode(prompt)
    written: list[int] = []
    for _ in range(count):
        with torch.no_grad():
            token = int(model.model(torch.tensor([ids + written]))[0, -1].argmax())
        if token == model.tokenizer.end_of_text:
            break
        written.append(token)
        if stop in model.tokenizer.decode(written):
            break
    return model.tokenizer.decode(written).partition(stop)[0]


def test_a_damaged_file_is_named_and_the_others_are_scored(world: Any, tmp_path: Path) -> None:
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "the river"}\n{"text": "cut', encoding="utf-8")
    (tmp_path / "wsc273.txt").write_text(SCHEMAS, encoding="utf-8")
    results = evaluate(world.model, ["lambada.openai.whole-word", "wsc273.full"], tmp_path, tmp_path / "out")
    assert [result.protocol for result in results.results] == ["wsc273.full"]
    assert "lambada_test.jsonl line 2" in results.skipped[0].reason


@pytest.mark.parametrize("content", [b"x\t2\t\ta sentence\n", b"x\tyes\t\ta sentence\n", b"x\t1\t\t\xff\xfe\n"])
def test_damaged_sentences_are_skipped_by_name(world: Any, tmp_path: Path, content: bytes) -> None:
    for name in ("cola/in_domain_train.tsv", "cola/in_domain_dev.tsv", "SST-2/dev.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "wsc273.txt").write_text(SCHEMAS, encoding="utf-8")
    protocols = ["cola", "sst-2.whole-word", "wsc273.full"]
    results = evaluate(world.model, protocols, tmp_path, tmp_path / "out")
    reasons = {skipped.protocol: skipped.reason for skipped in results.skipped}
    assert "in_domain_dev.tsv" in reasons["cola.mean-log-probability"]
    assert "dev.tsv" in reasons["sst-2.whole-word"]


def test_a_letter_that_is_not_utf_8_refuses_story_cloze(tmp_path: Path, world: Any) -> None:
    story = tmp_path / "cloze.csv"
    story.write_bytes("1,A café.,It rains.,It is wet.,I go.,I stay dry.,I get wet.,2\r\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"cloze.csv.*line 1"):
        TASKS["story-cloze.mean"].read({"test": story}, world.model)


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


def test_agreement_is_counted_as_the_official_scripts_do() -> None:
    assert [exact_match("The Beatles.", name) for name in ("beatles", "queen")] == [1, 0]
    assert word_f1("the cat sat", "a cat sat down") == pytest.approx(0.8)
    assert word_f1("", "the") == 1
    for score in (word_f1, exact_match):
        assert against_people(score, "white", ["white", "white", "black"]) == pytest.approx(1)
        assert against_people(score, "black", ["white", "white", "black"]) == pytest.approx(2 / 3)
        assert against_people(score, "black", ["black"]) == 1


def test_bleu_of_any_choice_of_pairs_is_sacrebleus() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = ["the river flows north to the lake", "a stream", "", "of the lake, very slowly"]
    references = ["the river flows to the lake", "a stream flows", "nothing", "of the lake, slowly"]
    bleu = Bleu(texts, references)
    for chosen in ([0, 1, 2, 3], [3, 3, 0, 1], [2, 1]):
        expected = sacrebleu.corpus_bleu([texts[i] for i in chosen], [[references[i] for i in chosen]]).score
        assert bleu.score(np.array(chosen)) == pytest.approx(expected)


def test_a_second_score_leaves_out_what_the_training_corpus_has(world: Any, tmp_path: Path) -> None:
    passages = [
        "the river flows north of the lake to a stream",
        "a lake of the stream flows very slowly north to it",
    ]
    (tmp_path / "lambada_test.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in passages), encoding="utf-8"
    )
    (tmp_path / "dev.tsv").write_text(f"sentence\tlabel\n{passages[0]}\t1\n{passages[1]}\t0\n", encoding="utf-8")
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "dev.tsv").rename(tmp_path / "SST-2" / "dev.tsv")
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id="0" * 32, text=f"It is said that {passages[0]}.")], work)
    tasks = ["lambada.openai.whole-word", "sst-2.whole-word"]
    results = evaluate(world.model, tasks, tmp_path, tmp_path / "out", overlap=tmp_path / "corpus")
    for task, figure in zip(tasks, (results.results[0], results.results[-1]), strict=True):
        first, second = read_examples(tmp_path / "out", task)
        assert (first["overlap"], second["overlap"]) == (1.0, 0.0)
        assert figure.details["overlap"] == {
            "mean": 0.5,
            "examples": 1,
            "value without": second["accuracy"],
            "stderr without": None,
        }


def test_an_empty_answer_is_left_out_and_counted(world: Any, tmp_path: Path) -> None:
    article = {"article": "The river.", "questions": ["Where?"] * 2, "answers": ["A", "B"]}
    article["options"] = [["north", " ", "a", "to"], ["north", "a", "the", "to"]]
    results, _ = run(world, tmp_path, "race-high.mean", {"RACE/test/high/1.txt": json.dumps(article)})
    assert results.results[0].count == 1
    assert (results.skipped[0].examples, "answer is empty" in results.skipped[0].reason) == (1, True)


def test_small_pieces() -> None:
    assert first_sentence('Il a dit "non." Puis il part.') == 'Il a dit "non."'
    assert first_sentence(" 3.5 km\n") == "3.5 km"
    for whole in (
        "M. Obama et Mme. Clinton (J. Doe) aux U.S. Open, p. 3.",
        "Est-ce vrai ? », a-t-il dit.",
        "« Je ne sais pas. »",
        "Il part le 3 Jan. 2014 !",
    ):
        assert first_sentence(f"{whole} Puis il part.") == whole
    assert sentences("One. Two? Three 3.5!\nFour") == ["One.", "Two?", "Three 3.5!", "Four"]
    assert best_threshold([(0.1, 0), (0.2, 0), (0.3, 1)]) == (pytest.approx(0.25), pytest.approx(1.0))
    assert Scored((-1.0, -3.0), (True, False)).mean == -2
    assert Figure.ratio("", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).stderr == pytest.approx(0)
    assert Figure.mean("", [1.0, 2.0, 6.0]).stderr == pytest.approx(math.sqrt(7 / 3))
    figure = Figure.mean("perplexity", [1.0, 3.0])
    assert (figure.value, figure.stderr) == pytest.approx((math.e**2, math.e**2))
    answers = [Scored((value,), (True,)) for value in (-2.0, -1.0, -1.0)]
    record = TASKS["wsc273.full"].score(Example("1", {"label": 2}), answers, cast(Any, None))
    assert record == {"accuracy": 0.0, "chosen": 1, "label": 2}


def test_equal_answers_do_not_make_a_score_certain() -> None:
    """The most confident 1 % of 1,000 questions are ten: none right allows for a share of some tenths."""
    records = [{"exact match": 0.0, "confidence": n / 1_000} for n in range(1_000)]
    everything, best = TASKS["natural-questions.exact-match"].summarise(records)
    assert (everything.value, best.value, best.count) == (0, 0, 10)
    assert best.stderr == pytest.approx(beta(1, 11).std())
    assert everything.stderr == pytest.approx(beta(1, 1_001).std())
    (right,) = TASKS["wsc273.full"].summarise([{"accuracy": 1.0}] * 10)
    assert right.stderr == best.stderr
    (one,) = TASKS["wsc273.full"].summarise([{"accuracy": 1.0}])
    assert one.stderr is None


def test_a_prompt_that_does_not_fit_loses_the_document_first(world: Any) -> None:
    encoder = RequestEncoder(Tokenizer.load(world.model), 48)
    assert fitted(range(100), (1, 2), 9, encoder) == (*range(38), 1, 2)
    assert fitted((), range(100), 9, encoder) == tuple(range(60, 100))


def test_the_most_confident_answers_are_a_hundredth_of_all() -> None:
    records = [{"confidence": n / 200, "exact match": float(n >= 198)} for n in range(200)]
    every, confident = TASKS["natural-questions.exact-match"].summarise(records)
    assert (every.value, every.count) == (0.01, 200)
    assert (confident.value, confident.count) == (1.0, 2)


def test_a_summary_is_three_sentences_compared_by_stems(world: Any) -> None:
    pytest.importorskip("rouge_score")
    encoder = RequestEncoder(Tokenizer.load(world.model), 48)
    article = "One. Two. Three. Four. Five. Six. Seven. Eight."
    example = Example("1", {"article": article, "highlights": "One.", "number": 1})
    written = TASKS["cnndm.tldr"].score(example, [Generated(article, (), ())], encoder)
    assert written["text"] == "One.\nTwo.\nThree."
    drawn = [TASKS["cnndm.random-3"].score(example, [], encoder)["text"] for _ in range(4)]
    assert len(drawn[0].split("\n")) == 3
    assert len(set(drawn)) == 1, "the article decides which sentences are drawn"
    values = {"rouge-1": 4 / 7, "rouge-2": 2 / 5, "rouge-l": 4 / 7, "rouge average": (4 / 7 + 2 / 5 + 4 / 7) / 3}
    assert rouge("the rivers flow north", "a river flows") == pytest.approx(values)
