"""Every protocol on small files in the official format, against answers worked out here by plain means."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from plain_model import Plain, run
from scipy.stats import beta
from sklearn.metrics import matthews_corrcoef

from headwater.errors import DataError, ResourceError
from headwater.evaluation import (
    DataFiles,
    Example,
    Figure,
    Generated,
    GenerationRequest,
    RequestEncoder,
    Scored,
    all_tasks,
    evaluate,
    read_examples,
)
from headwater.tokenizer import Tokenizer
from headwater_papers.paper_tables import MODELS, SIZES, TABLES
from headwater_papers.tasks import sentences as single_sentences
from headwater_papers.tasks.agreement import Bleu, against_people, exact_match, rouge, word_f1
from headwater_papers.tasks.cbt import read_stories
from headwater_papers.tasks.generation import first_sentence, generation
from headwater_papers.tasks.pronouns import read_blocks
from headwater_papers.tasks.sentences import best_threshold
from headwater_papers.tasks.summaries import sentences


def test_every_published_value_is_a_tables() -> None:
    """The product's values are typed once more in its own file."""
    tasks = all_tasks()
    assert all("." in name for name in tasks)
    columns = {
        ("lambada.openai.whole-word", "perplexity"): ("LAMBADA ppl", 1),
        ("lambada.openai.whole-word.stop-words", "accuracy"): ("LAMBADA acc", 100),
        ("wikitext-2.detokenized", "perplexity"): ("WikiText2", 1),
        ("wikitext-103.detokenized", "perplexity"): ("WikiText103", 1),
        ("ptb.detokenized", "perplexity"): ("PTB", 1),
        ("1bw.detokenized", "perplexity"): ("1BW", 1),
        ("enwik8.bytes", "bits per byte"): ("enwik8 bpb", 1),
        ("text8.characters", "bits per character"): ("text8 bpc", 1),
        ("cbt.common-nouns.detokenized", "accuracy"): ("CBT-CN", 100),
        ("cbt.named-entities.detokenized", "accuracy"): ("CBT-NE", 100),
    }
    table = TABLES["gpt2-table-3"]
    for task in tasks.values():
        assert set(task.published) <= {metric.name for metric in task.metrics}
        for metric, values in task.published.items():
            column, scale = columns.pop((task.protocol, metric), ("", 1))
            if column:
                printed = {
                    model: table.value(size, column) / scale for model, size in zip(MODELS, SIZES, strict=True)
                }
                assert values == pytest.approx(printed)
    assert not columns


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
    for task in all_tasks().values():
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
    task = all_tasks()["cola.mean-log-probability"]
    for folder in (tmp_path, tmp_path / "CoLA", tmp_path / "cola"):
        examples = task.read(DataFiles([folder]).locate(task.sources), world.model)
        assert [one.content["sentence"] for one in examples] == ["the river flows", "of of", "a lake"]


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
        all_tasks()["story-cloze.mean"].read({"test": story}, world.model)


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
    record = all_tasks()["wsc273.full"].score(Example("1", {"label": 2}), answers, cast(Any, None))
    assert record == {"accuracy": 0.0, "chosen": 1, "label": 2}


def test_equal_answers_do_not_make_a_score_certain() -> None:
    """The most confident 1 % of 1,000 questions are ten: none right allows for a share of some tenths."""
    records = [{"exact match": 0.0, "confidence": n / 1_000} for n in range(1_000)]
    everything, best = all_tasks()["natural-questions.exact-match"].summarise(records)
    assert (everything.value, best.value, best.count) == (0, 0, 10)
    assert best.stderr == pytest.approx(beta(1, 11).std())
    assert everything.stderr == pytest.approx(beta(1, 1_001).std())
    (right,) = all_tasks()["wsc273.full"].summarise([{"accuracy": 1.0}] * 10)
    assert right.stderr == best.stderr
    (one,) = all_tasks()["wsc273.full"].summarise([{"accuracy": 1.0}])
    assert one.stderr is None


def test_a_prompt_that_does_not_fit_loses_the_document_first(world: Any) -> None:
    encoder = RequestEncoder(Tokenizer.load(world.model), 48)
    assert generation(range(100), (1, 2), 9, encoder) == GenerationRequest((*range(38), 1, 2), 9, is_cut=True)
    assert generation((), range(100), 9, encoder) == GenerationRequest(tuple(range(60, 100)), 9, is_cut=True)
    assert generation(range(38), (1, 2), 9, encoder) == GenerationRequest((*range(38), 1, 2), 9)


def test_documents_that_do_not_fit_are_counted(world: Any, tmp_path: Path) -> None:
    turn = [{"input_text": "to the lake", "turn_id": 1}]
    stories = [
        {"id": str(times), "story": "The river flows. " * times, "questions": turn, "answers": turn}
        for times in (1, 40, 60)
    ]
    content = json.dumps({"data": stories})
    results, _ = run(world, tmp_path, "coqa.greedy", {"coqa-dev-v1.0.json": content})
    assert {result.details["cut contexts"] for result in results.results} == {2}


def test_the_most_confident_answers_are_a_hundredth_of_all() -> None:
    records = [{"confidence": n / 200, "exact match": float(n >= 198)} for n in range(200)]
    every, confident = all_tasks()["natural-questions.exact-match"].summarise(records)
    assert (every.value, every.count) == (0.01, 200)
    assert (confident.value, confident.count) == (1.0, 2)


def test_a_summary_is_three_sentences_compared_by_stems(world: Any) -> None:
    pytest.importorskip("rouge_score")
    encoder = RequestEncoder(Tokenizer.load(world.model), 48)
    article = "One. Two. Three. Four. Five. Six. Seven. Eight."
    example = Example("1", {"article": article, "highlights": "One.", "number": 1})
    written = all_tasks()["cnndm.tldr"].score(example, [Generated(article, (), ())], encoder)
    assert written["text"] == "One.\nTwo.\nThree."
    drawn = [all_tasks()["cnndm.random-3"].score(example, [], encoder)["text"] for _ in range(4)]
    assert len(drawn[0].split("\n")) == 3
    assert len(set(drawn)) == 1, "the article decides which sentences are drawn"
    values = {"rouge-1": 4 / 7, "rouge-2": 2 / 5, "rouge-l": 4 / 7, "rouge average": (4 / 7 + 2 / 5 + 4 / 7) / 3}
    assert rouge("the rivers flow north", "a river flows") == pytest.approx(values)
