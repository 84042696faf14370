import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from plain_model import HELLASWAG

from headwater.cli.main import main
from headwater.corpus import Document, read_documents, write_documents
from headwater.errors import FolderError, MismatchError, ResourceError, StorageError, UsageError
from headwater.evaluation import (
    ContinuationRequest,
    EvaluateConfig,
    Results,
    Scored,
    all_tasks,
    compare,
    evaluate,
    read_examples,
    select,
)
from headwater.evaluation.answers import AnswerFile
from headwater.evaluation.comparison import _difference
from headwater.evaluation.tasks.held_out import Alphabet, document_ids, read_text
from headwater.inference import Scorer
from headwater.intervals import of_paired_shares
from headwater.model import build_model, load_model, preset, save_model
from headwater.pretraining import pack
from headwater.reading import sha256_of
from headwater.storage import Stage, read_manifest
from headwater.tokenizer import Tokenizer

BOTH = ["heldout", "continuation.four"]


def plain_log_probability(model: torch.nn.Module, context: list[int], continuation: list[int]) -> float:
    """Each token by its own forward pass over the last tokens that fit."""
    total = 0.0
    ids = list(context)
    for token in continuation:
        with torch.no_grad():
            logits = model(torch.tensor([ids[-48:]]))[0, -1]
        total += float(logits.log_softmax(-1)[token])
        ids.append(token)
    return total


def test_bits_per_byte_are_those_of_a_plain_computation(world: Any, tmp_path: Path) -> None:
    results = evaluate(world.model, ["heldout"], world.tokens, tmp_path / "out").results
    model, tokenizer = load_model(world.model), Tokenizer.load(world.model)
    bits, size = 0.0, 0
    for document in document_ids(world.tokens, "validation"):
        ids = [tokenizer.end_of_text, *document.tolist()]
        size += len(tokenizer.decode(document[:-1].tolist()).encode())
        end = 1
        while end < len(ids):  # 48 tokens first, then 24 at a time after at least 24 others
            start, end = end, min(len(ids), end + (48 if end == 1 else 24))
            with torch.no_grad():
                rows = model(torch.tensor([ids[max(0, end - 49) : end - 1]]))[0].log_softmax(-1)
            wanted = torch.tensor(ids[start:end])
            bits -= float(rows[-len(wanted) :].gather(1, wanted[:, None]).sum()) / math.log(2)
    (result,) = results
    assert result.metric == "bits per byte"
    assert result.value == pytest.approx(bits / size, rel=1e-5)
    assert result.details["bytes"] == size
    assert result.stderr is not None
    assert len(result.details["yardsticks"]) == 3
    assert repr(Results.read(tmp_path / "out")).splitlines() == [
        f"Results of {world.model}:",
        f"  heldout.bits-per-byte bits per byte {result.value:.4g} ({result.count} examples)",
    ]


@pytest.mark.parametrize("how", ["mean", "gain"])
def test_choices_are_those_of_a_plain_computation(world: Any, tmp_path: Path, how: str) -> None:
    evaluate(world.model, [f"continuation.four.{how}"], world.labels, tmp_path / "out")
    model, tokenizer = load_model(world.model), Tokenizer.load(world.model)
    end = tokenizer.end_of_text
    assert end is not None
    records = list(read_examples(tmp_path / "out", f"continuation.four.{how}"))
    lines = (world.labels / "continuation.jsonl").read_text(encoding="utf-8").splitlines()
    for line, record in zip(lines, records, strict=True):
        row = json.loads(line)
        assert record["example"]["answers"] == row["answers"]
        assert record["example"]["label"] == row["label"]
        values = []
        for answer in row["answers"]:
            whole = tokenizer.encode(row["context"] + answer)
            # The newlines between both belong to the context where a mean over the answer's tokens is taken.
            head = tokenizer.encode(row["context"] if how == "mean" else row["context"].rstrip())
            tail = whole[len(head) :][: 49 - len(head)]
            value = plain_log_probability(model, head, tail)
            values.append(
                value / len(tail) if how == "mean" else value - plain_log_probability(model, [end], tail)
            )
        assert record["chosen"] == int(np.argmax(values))
        assert record["accuracy"] == float(record["chosen"] == row["label"])


def test_an_interrupted_evaluation_continues_where_it_was(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = Scorer.token_scores

    def counted(self: Scorer, requests: list) -> list:  # type: ignore[type-arg]
        asked.append(len(requests))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(self, requests)

    monkeypatch.setattr(Scorer, "token_scores", counted)
    data = [world.tokens, world.labels]
    with pytest.raises(KeyboardInterrupt):
        evaluate(world.model, BOTH, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    first = asked[0]
    asked[:] = [0, 0]
    again = evaluate(world.model, BOTH, data, tmp_path / "out")
    assert first not in asked  # what was answered before the interruption was not asked again
    undisturbed = evaluate(world.model, BOTH, data, tmp_path / "other")
    assert [(r.protocol, r.value) for r in again.results] == [(r.protocol, r.value) for r in undisturbed.results]
    assert not list(tmp_path.glob(".*"))  # nothing is left lying about


def test_a_damaged_answer_file_is_written_again(world: Any, tmp_path: Path) -> None:
    (tmp_path / ".out.answers").write_bytes(b"no database at all" * 100)
    assert evaluate(world.model, ["continuation"], world.labels, tmp_path / "out").results
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_processes_can_append_to_one_answer_file(tmp_path: Path) -> None:
    first, second = ContinuationRequest((1,), (2,)), ContinuationRequest((3,), (4,))
    answer = Scored((-1.0,), (True,))
    path = tmp_path / "answers"
    with AnswerFile(path, "one", "fp32") as one, AnswerFile(path, "one", "fp32") as other:
        one.add({first: answer})
        other.add({second: answer})
        one.add({second: answer})
        assert one.look_up([first, second]) == {first: answer, second: answer}
    with AnswerFile(path, "one", "fp32") as stored:
        assert stored.look_up([first, second]) == {first: answer, second: answer}


def test_an_answer_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    with pytest.raises(StorageError, match="answers"), AnswerFile(tmp_path / "answers", "one", "fp32"):
        pass


def test_another_models_answers_are_never_used(tmp_path: Path) -> None:
    request = ContinuationRequest((1,), (2,))
    with AnswerFile(tmp_path / "answers", "one", "fp32") as stored:
        stored.add({request: Scored((-1.0,), (True,))})
        assert stored.look_up([request]) == {request: Scored((-1.0,), (True,))}
    for model, precision in (("another", "fp32"), ("one", "bf16")):
        with AnswerFile(tmp_path / "answers", model, precision) as stored:
            assert stored.look_up([request]) == {}


def test_an_answer_that_was_cut_short_costs_only_itself(tmp_path: Path) -> None:
    first, second, third = (ContinuationRequest((n,), (2,)) for n in range(3))
    answer = Scored((-1.0,), (True,))
    path = tmp_path / "answers"
    with AnswerFile(path, "one", "fp32") as stored:
        stored.add({first: answer, second: answer})
    path.write_bytes(path.read_bytes()[:-9])  # killed while it wrote
    with AnswerFile(path, "one", "fp32") as stored:
        stored.add({third: answer})
    with AnswerFile(path, "one", "fp32") as stored:
        assert stored.look_up([first, second, third]) == {first: answer, third: answer}


def test_an_altered_answer_is_computed_again(tmp_path: Path) -> None:
    request = ContinuationRequest((1,), (2,))
    with AnswerFile(tmp_path / "answers", "one", "fp32") as stored:
        stored.add({request: Scored((-1.0,), (True,))})
    path = tmp_path / "answers"
    assert path.read_bytes().count(b"-1.0") == 1
    path.write_bytes(path.read_bytes().replace(b"-1.0", b"-1.5"))
    with AnswerFile(tmp_path / "answers", "one", "fp32") as stored:
        assert stored.look_up([request]) == {}


def test_a_missing_set_is_skipped_with_a_note(world: Any, tmp_path: Path) -> None:
    results = evaluate(world.model, ["heldout", "continuation.four.mean"], world.tokens, tmp_path / "out")
    assert [result.protocol for result in results.results] == ["heldout.bits-per-byte"]
    (skipped,) = results.skipped
    assert skipped.protocol == "continuation.four.mean"
    assert "continuation.jsonl was not found" in skipped.reason
    assert Results.read(tmp_path / "out") == results


def test_a_run_without_scores_is_an_error_and_writes_nothing(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    tasks = "lambada.openai.whole-word,lambada.openai.last-token,hellaswag.lm-eval.total"
    options = ["--model", str(world.model), "--data", str(world.labels), "--out", str(out)]
    assert main(["evaluate", "--tasks", tasks, *options]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "no protocol could be scored: lambada.openai.whole-word: lambada_test" in said
    assert "hellaswag.lm-eval.total: " in said
    assert said.count("lambada_test_openai.jsonl or lambada_test.jsonl was not found") == 1
    assert f"headwater evaluate --list --tasks {tasks} --data={world.labels}" in said
    assert not list(tmp_path.iterdir())


def test_a_data_folder_that_is_not_there_is_an_error(world: Any, tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="nowhere"):
        evaluate(world.model, ["heldout"], [world.tokens, tmp_path / "nowhere"], tmp_path / "out")


def test_every_score_can_be_computed_again_from_the_examples(world: Any, tmp_path: Path) -> None:
    evaluate(world.model, BOTH, [world.tokens, world.labels], tmp_path / "out", limit=5)
    for example in read_examples(tmp_path / "out", "heldout.bits-per-byte"):
        nats = -math.fsum(math.fsum(answer["log_probabilities"]) for answer in example["answers"])
        assert nats / math.log(2) == pytest.approx(example["bits"], rel=1e-6)
    for example in read_examples(tmp_path / "out", "continuation.four.mean"):
        means = [np.mean(answer["log_probabilities"]) for answer in example["answers"]]
        assert int(np.argmax(means)) == example["chosen"]
        assert example["accuracy"] == (example["chosen"] == example["label"])


def test_two_evaluations_are_compared_example_by_example(world: Any, tmp_path: Path) -> None:
    for name in ("model", "wide"):
        evaluate(getattr(world, name), BOTH, [world.tokens, world.labels], tmp_path / name)
    found = {(one.protocol, one.metric): one for one in compare(tmp_path / "model", tmp_path / "wide")}
    accuracy = found["continuation.four.mean", "accuracy"]
    right = [
        np.array([example["accuracy"] for example in read_examples(tmp_path / name, accuracy.protocol)])
        for name in ("model", "wide")
    ]
    gains = right[1] - right[0]
    assert (accuracy.a, accuracy.b, accuracy.count) == (right[0].mean(), right[1].mean(), len(gains))
    assert (accuracy.low, accuracy.high) == of_paired_shares([*zip(*right, strict=True)])
    held_out = found["heldout.bits-per-byte", "bits per byte"]
    scores = {name: Results.read(tmp_path / name).results[0] for name in ("model", "wide")}
    assert (held_out.a, held_out.b) == pytest.approx((scores["model"].value, scores["wide"].value), rel=1e-9)
    assert held_out.difference == held_out.b - held_out.a
    # The interval has the width of a bootstrap over documents, and is narrower than for unpaired scores.
    records = [list(read_examples(tmp_path / name, held_out.protocol)) for name in ("model", "wide")]
    bits = np.array([[record["bits"] for record in side] for side in records])
    sizes = np.array([record["bytes"] for record in records[0]])
    drawn = np.random.default_rng(0).integers(0, len(sizes), (4_000, len(sizes)))
    rates = bits[:, drawn].sum(axis=2) / sizes[drawn].sum(axis=1)
    assert held_out.low is not None
    assert held_out.high is not None
    assert held_out.high - held_out.low == pytest.approx(2 * 1.96 * np.std(rates[1] - rates[0]), rel=0.15)
    with pytest.raises(MismatchError, match="no protocol in common"):
        compare(tmp_path / "model", one_task(world, tmp_path))


def one_task(world: Any, tmp_path: Path) -> Path:
    (tmp_path / "hellaswag_val.jsonl").write_text(HELLASWAG, encoding="utf-8")
    evaluate(world.model, ["hellaswag.lm-eval.total"], tmp_path, tmp_path / "other")
    return tmp_path / "other"


def test_windows_of_different_texts_are_not_compared(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ptb.test.txt").write_text(" the river flows slowly to the lake of the north \n" * 40)
    (tmp_path / "hellaswag_val.jsonl").write_text(HELLASWAG, encoding="utf-8")
    results = {}
    for name in ("model", "wide"):  # their contexts are 48 and 640 tokens, and so are their windows
        results[name] = tmp_path / name
        evaluate(getattr(world, name), ["ptb.tokens", "hellaswag.lm-eval.total"], tmp_path, results[name])
    assert [one.protocol for one in compare(results["model"], results["wide"])] == ["hellaswag.lm-eval.total"]
    assert main(["evaluate", "--compare", *map(str, results.values())]) == 0
    said = capsys.readouterr()
    assert "left out: ptb.tokens: the examples have different texts" in said.err
    assert "ptb.tokens" not in said.out
    for name in results:
        evaluate(getattr(world, name), ["ptb.tokens"], tmp_path, tmp_path / f"{name} alone")
    with pytest.raises(MismatchError, match=r"ptb\.tokens: the examples have different texts"):
        compare(tmp_path / "model alone", tmp_path / "wide alone")


def save_with_tokenizer(folder: Path, corpus: Path, *, kind: Literal["gpt1", "gpt2"] = "gpt2") -> Path:
    """Write a model of random weights with a tokenizer of its own."""
    special = ["<|endoftext|>"] if kind == "gpt2" else []
    tokenizer = Tokenizer.train([corpus], kind=kind, vocab_size=300, special_tokens=special)
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=48, layers=1, width=32, heads=2)
    with Stage(folder, kind="model", config=config.to_dict(), inputs={}).write() as work:
        save_model(build_model(config, seed=3), work, tokenizer=tokenizer)
    return folder


def test_documents_of_two_tokenizers_are_compared_by_equal_texts(world: Any, tmp_path: Path) -> None:
    """The other corpus has as many documents with the same numbers."""
    texts = [document.text for document in read_documents(world.root / "corpus")]
    results = {}
    for name, content in (("same", texts), ("other", [text + " Another end." for text in texts])):
        with Stage(tmp_path / name, kind="corpus", config={"name": name}, inputs={}).write() as work:
            write_documents([Document(id=f"{i:032x}", text=text) for i, text in enumerate(content)], work)
        model = save_with_tokenizer(tmp_path / f"{name}-model", tmp_path / name)
        pack(tmp_path / name, model, tmp_path / f"{name}-tokens", 0.2)
        results[name] = tmp_path / f"{name}-results"
        evaluate(model, ["heldout"], tmp_path / f"{name}-tokens", results[name])
    evaluate(world.model, ["heldout"], world.tokens, tmp_path / "first")
    assert compare(tmp_path / "first", results["same"])[0].protocol == "heldout.bits-per-byte"
    with pytest.raises(MismatchError, match="the examples have different texts"):
        compare(tmp_path / "first", results["other"])


def test_a_score_says_what_its_tokenizer_loses(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_with_tokenizer(tmp_path / "gpt1", world.root / "corpus", kind="gpt1")
    text = "\n".join(["The RIVER flows\tslowly. 강물"] * 40)
    (tmp_path / "ptb.test.txt").write_text(text, encoding="utf-8")
    for name, folder in (("a", world.wide), ("b", model)):
        options = [
            "--tasks",
            "ptb,lambada.openai.whole-word",
            "--data",
            str(tmp_path),
            "--out",
            str(tmp_path / name),
        ]
        (tmp_path / "lambada_test.jsonl").write_text('{"text": "The river flows"}\n', encoding="utf-8")
        assert main(["evaluate", "--model", str(folder), *options]) == 0
    said = capsys.readouterr().out
    kept, lossy = (Results.read(tmp_path / name).results[0] for name in "ab")
    assert "lost text" not in kept.details
    capitals, tabs = sum(map(str.isupper, text)), text.count("\t")
    assert lossy.details["lost text"]["capitals"] == pytest.approx(capitals / len(text))
    assert lossy.details["lost text"]["white space"] == pytest.approx(tabs / len(text))
    assert f"capitals {capitals / len(text):.1%}, white space {tabs / len(text):.1%}" in said


def test_held_out_text_counts_what_was_lost_when_it_was_packed(world: Any, tmp_path: Path) -> None:
    model = save_with_tokenizer(tmp_path / "gpt1", world.root / "corpus", kind="gpt1")
    pack(world.root / "corpus", model, tmp_path / "tokens", 0.2)
    evaluate(world.model, ["heldout"], world.tokens, tmp_path / "a")
    (lossy,) = evaluate(model, ["heldout"], tmp_path / "tokens", tmp_path / "b").results
    held_out = {
        Tokenizer.load(world.model).decode(ids[:-1].tolist()) for ids in document_ids(world.tokens, "validation")
    }
    capitals = sum(character.isupper() for text in held_out for character in text)
    assert lossy.details["lost text"]["capitals"] == pytest.approx(capitals / sum(map(len, held_out)))
    with pytest.raises(MismatchError, match="bits per byte: the tokenizers lose different shares of the text"):
        compare(tmp_path / "a", tmp_path / "b")


def test_a_file_that_is_not_the_published_one_has_no_published_values(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lambada_test.jsonl"
    path.write_text('{"text": "the river flows to the lake"}\n', encoding="utf-8")
    options = ["--model", str(world.model), "--tasks", "lambada.openai.whole-word", "--data", str(tmp_path)]
    assert main(["evaluate", *options, "--out", str(tmp_path / "other")]) == 0
    assert f"not compared with published values: {path} is not the published set" in capsys.readouterr().out
    assert not any(result.published for result in Results.read(tmp_path / "other").results)
    task = all_tasks()["lambada.openai.whole-word"]
    known = task.published_set
    try:
        task.published_set = {"sha256": sha256_of(path)}
        results = evaluate(world.model, [task.protocol], tmp_path, tmp_path / "same").results
    finally:
        task.published_set = known
    assert [result.published["gpt2-xl"] for result in results] == [0.5266, 8.63]


def test_documents_without_a_token_are_not_counted(world: Any, tmp_path: Path) -> None:
    """GPT-1's tokens have neither white space nor an end of text."""
    model = save_with_tokenizer(tmp_path / "gpt1", world.root / "corpus", kind="gpt1")
    texts = [" " if number % 3 else f"the river flows to lake {number}. " * 30 for number in range(30)]
    with Stage(tmp_path / "some", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id=f"{i:032x}", text=text) for i, text in enumerate(texts)], work)
    pack(tmp_path / "some", model, tmp_path / "tokens", 0.5)
    config = EvaluateConfig(yardstick_bytes=0)
    (result,) = evaluate(model, ["heldout"], tmp_path / "tokens", tmp_path / "out", config=config).results
    packed = read_manifest(tmp_path / "tokens").config["counts"]["validation"]
    assert 0 < result.count < packed["documents"]


def test_perplexities_are_compared_as_perplexities(world: Any, tmp_path: Path) -> None:
    (tmp_path / "ptb.test.txt").write_text(" the river flows slowly to the lake of the north \n" * 40)
    lines = [{"text": "the lake flows to the river and the river"}, {"text": "a stream of the north is a lake"}]
    (tmp_path / "lambada_test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tasks = ["ptb.tokens", "lambada.openai.whole-word"]
    config = EvaluateConfig(window=48)
    for name in ("model", "wide"):
        evaluate(getattr(world, name), tasks, tmp_path, tmp_path / name, config=config)
    found = {(one.protocol, one.metric): one for one in compare(tmp_path / "model", tmp_path / "wide")}
    for result in Results.read(tmp_path / "wide").results:
        one = found[result.protocol, result.metric]
        assert one.b == pytest.approx(result.value, rel=1e-6)
        assert one.difference == one.b - one.a


def test_tokens_of_another_tokenizer_are_skipped(world: Any, tmp_path: Path) -> None:
    other = save_with_tokenizer(tmp_path / "other", world.root / "corpus")
    found = evaluate(other, BOTH, [world.tokens, world.labels], tmp_path / "out")
    assert [one.protocol for one in found.skipped] == ["heldout.bits-per-byte"]
    assert "another tokenizer" in found.skipped[0].reason
    assert "continuation.four.mean" in {one.protocol for one in found.results}


@pytest.mark.parametrize(
    "unused", [["--out", "x"], ["--limit", "3"], ["--device", "auto"], ["--set", "a=1"], ["--overlap", "c"]]
)
def test_options_of_scoring_are_refused_where_nothing_is_scored(
    unused: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (["--compare", "a", "b"], ["--list"]):
        assert main(["evaluate", *asked, *unused]) == 2
        assert f"{asked[0]} does not use {unused[0]}. Leave it out." in capsys.readouterr().err


def test_scores_that_are_not_finite_are_refused(world: Any, tmp_path: Path) -> None:
    model, tokenizer = load_model(world.model), Tokenizer.load(world.model)
    with torch.no_grad():
        dict(model.named_parameters())["final_norm.weight"].mul_(1e38)  # finite, and the logits are not
    (tmp_path / "large").mkdir()
    save_model(model, tmp_path / "large", tokenizer=tokenizer)
    (tmp_path / "hellaswag_val.jsonl").write_text(HELLASWAG, encoding="utf-8")
    with pytest.raises(ResourceError, match="the model's largest logit is inf"):
        evaluate(tmp_path / "large", ["hellaswag.lm-eval.total"], tmp_path, tmp_path / "out")


def test_a_model_of_noise_has_a_perplexity(world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = load_model(world.model), Tokenizer.load(world.model)
    with torch.no_grad():
        dict(model.named_parameters())["final_norm.weight"].mul_(1e4)
    (tmp_path / "noise").mkdir()
    save_model(model, tmp_path / "noise", tokenizer=tokenizer)
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "the river flows slowly north"}\n' * 2)
    (tmp_path / "ptb.test.txt").write_text("the river flows slowly north\n" * 30)
    options = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    tasks = "ptb.tokens,lambada.openai.whole-word"
    assert main(["evaluate", "--model", str(tmp_path / "noise"), "--tasks", tasks, *options]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 300
    assert main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]) == 0
    assert "1.01e+304" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(world: Any, tmp_path: Path, limit: int) -> None:
    with pytest.raises(UsageError, match=f"limit is {limit}"):
        evaluate(world.model, ["heldout"], world.tokens, tmp_path / "out", limit=limit)


@pytest.mark.parametrize(
    ("task", "file", "row"),
    [
        ("lambada.openai.whole-word", "lambada_test.jsonl", {"text": ["the river", "flows"]}),
        ("natural-questions.question-type", "nq-dev.jsonl", {"question": "who", "answer": "Paris"}),
        ("cnndm.lead-3", "cnndm_test.jsonl", {"article": "The river.", "highlights": None}),
    ],
)
def test_a_field_of_another_type_is_not_read_as_text(
    world: Any, tmp_path: Path, task: str, file: str, row: dict[str, Any]
) -> None:
    (tmp_path / file).write_text(json.dumps(row) + "\n")
    with pytest.raises(ResourceError, match=f"{file} row 1 has another format: .*Correct that line"):
        evaluate(world.model, [task], tmp_path, tmp_path / "out")


def test_an_empty_list_of_tasks_is_refused(world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", str(world.model), "--data", str(world.tokens), "--out", str(tmp_path / "out")]
    assert main(["evaluate", "--tasks", ",", *options]) == 2
    assert "--tasks is missing" in capsys.readouterr().err


def test_a_results_folder_of_any_name_leaves_no_answers(world: Any, tmp_path: Path) -> None:
    evaluate(world.model, ["continuation"], world.labels, tmp_path / "results [1]", limit=1)
    assert [path.name for path in tmp_path.iterdir()] == ["results [1]"]


def test_written_texts_are_not_compared_by_own_likelihood() -> None:
    record = {"text": "a lake", "answers": [{"text": "a lake", "log_probabilities": [-1.0]}]}
    assert _difference("wmt14.en-fr", "bleu", [(record, record)]) is None


def test_unknown_tasks_and_foreign_folders_are_refused(world: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"heldout\.bits-per-byte"):
        evaluate(world.model, ["heldout.bits-per-bite"], world.tokens, tmp_path / "out")
    with pytest.raises(UsageError, match="no task is named"):
        evaluate(world.model, [], world.tokens, tmp_path / "out")
    with pytest.raises(FolderError, match="results"):
        Results.read(world.tokens)


def test_limit_takes_the_first_examples(world: Any, tmp_path: Path) -> None:
    (result,) = evaluate(world.model, ["continuation.four.mean"], world.labels, tmp_path / "out", limit=2).results
    assert result.count == 2
    assert result.examples == f"2 of {result.details['available']:,} examples"
    assert result.details["available"] > 2


def test_the_name_of_a_protocol_selects_it_alone() -> None:
    assert [task.protocol for task in select(["lambada.openai.whole-word"])] == ["lambada.openai.whole-word"]
    assert len(select(["lambada.openai"])) == 3


def test_a_task_without_a_score_fails_and_the_rest_is_kept(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "the river flows"}\n', encoding="utf-8")
    out = tmp_path / "out"
    folders = [
        "--model",
        str(world.model),
        "--data",
        str(tmp_path),
        "--data",
        str(world.labels),
        "--out",
        str(out),
    ]
    # Of LAMBADA, only one of the files is there, which is no failure.
    assert main(["evaluate", *folders, "--tasks", "lambada", "--limit", "1"]) == 0
    folders[-1] = str(out.with_name("two"))
    assert main(["evaluate", *folders, "--tasks", "continuation.four,hellaswag", "--limit", "1"]) == 1
    error = capsys.readouterr().err
    assert "hellaswag: no score, for the reason above" in error
    assert len(Results.read(out.with_name("two")).results) == 2
    (tmp_path / "lambada_test.jsonl").write_text("damaged\n", encoding="utf-8")
    folders[-1] = str(out.with_name("three"))
    assert main(["evaluate", *folders, "--tasks", "continuation.four,lambada"]) == 1
    assert "Error: lambada: no score" in capsys.readouterr().err, "not its protocols once more"


def test_the_bytes_of_a_stream_are_the_text_that_was_packed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(read_text.__globals__, "_PIECE_TOKENS", 100)
    tokenizer = Tokenizer.load(world.model)
    alphabet = Alphabet(tokenizer)
    documents = document_ids(world.tokens, "train")
    for ids in documents[:5]:
        assert alphabet.decode(ids) == tokenizer.decode(ids[:-1].tolist()).encode() + b"\xff"
    whole = read_text(world.tokens, "train", alphabet, 1 << 30)
    assert whole == b"".join(alphabet.decode(ids) for ids in documents)
    assert 0.8 * 2_000 < len(read_text(world.tokens, "train", alphabet, 2_000)) < 1.3 * 2_000
    assert read_text(world.tokens, "train", alphabet, 1)
