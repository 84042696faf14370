from __future__ import annotations

import gc
import pickle
import shutil
import subprocess
import sys
import unicodedata
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import headwater as hw
import headwater.inference.backends
from headwater.errors import FolderError, MismatchError, ResourceError, UsageError
from headwater.inference import LanguageModel
from headwater.model import build_model, preset, save_model

TEXTS = ["the river runs to the sea. ", "a stone lies in the river. "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = hw.Tokenizer.train(TEXTS, kind="gpt2", vocab_size=280, special_tokens=["<|endoftext|>"])
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    folder = tmp_path_factory.mktemp("model")
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def lm(folder: Path) -> LanguageModel:
    return hw.load(folder)


def test_the_same_prompt_and_seed_give_the_same_text(lm: LanguageModel) -> None:
    options = {"max_tokens": 30, "min_tokens": 30, "temperature": 0.9, "top_k": 40, "seed": 7}
    text = lm.generate("the river", **options)
    assert text
    assert lm.generate(["a stone", "the river", ""], **options)[1] == text
    assert "".join(lm.stream("the river", **options)) == text
    assert lm.generate("the river", **(options | {"seed": 8})) != text
    assert lm.generate("the river", **options, sample=1) != text


def test_both_unicode_forms_of_a_text_give_the_same_answers(lm: LanguageModel) -> None:
    text = "각 é"
    other = unicodedata.normalize("NFD", text)
    options = {"max_tokens": 12, "temperature": 0.9, "seed": 7}
    assert lm.generate(other, **options) == lm.generate(text, **options)
    assert lm.score([(other, other)]) == lm.score([(text, text)])
    assert lm.request("a", stop=other).stop == (text,)
    assert list(lm.request(other).prompt) == lm.tokenizer.encode(text) != lm.tokenizer.encode(other)


def test_large_objects_print_in_a_few_words(lm: LanguageModel) -> None:
    for large in (lm, lm.tokenizer, lm.tokenizer.vocabulary, lm.network, lm.scorer, lm.engine):
        assert len(repr(large)) < 200


def test_an_lstm_continues_a_text_by_its_logits_in_any_batch(tmp_path: Path) -> None:
    tokenizer = hw.Tokenizer.train(TEXTS, kind="gpt2", vocab_size=280, special_tokens=["<|endoftext|>"])
    config = preset("lstm-nano", vocabulary=tokenizer.vocabulary_size, context=40, init_deviation=0.3)
    save_model(build_model(config, seed=1), tmp_path, tokenizer=tokenizer)
    lm = hw.load(tmp_path)
    greedy = lm.submit("the river", max_tokens=12, min_tokens=12, temperature=0).wait()
    ids = list(greedy.request.prompt)
    for token in greedy.tokens:
        logits = lm.logits(torch.tensor([ids]))[0, -1].clone()
        logits[tokenizer.end_of_text] = -torch.inf
        assert token == int(logits.argmax())
        ids.append(token)
    options = {"max_tokens": 30, "min_tokens": 30, "seed": 3}
    prompts = ["a stone", "the river", "the river runs", "", "the river"]
    crowd = lm.generate(prompts, **options)
    assert [hw.load(tmp_path).generate(prompt, **options) for prompt in prompts] == crowd
    assert lm.generate("the river", **(options | {"max_tokens": 60}), beyond_context="shift").startswith(
        crowd[1][:20]
    )
    with pytest.raises(UsageError, match="int8 does not work with a model of kind lstm"):
        hw.load(tmp_path, precision="int8")


def test_a_saved_model_loads_equal_and_replaces_nothing(lm: LanguageModel, folder: Path, tmp_path: Path) -> None:
    lm.save(tmp_path / "copy")
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(hw.load(tmp_path / "copy").logits(ids), lm.logits(ids))
    with pytest.raises(FolderError, match="already contains a model"):
        lm.save(tmp_path / "copy")
    with pytest.raises(FolderError, match="already contains files"):
        lm.save(folder)


def test_the_model_is_there_again_after_generating_let_go_of_it(folder: Path) -> None:
    lm = hw.load(folder)
    ids = torch.tensor([[1, 2, 3]])
    lm.generate("the river", max_tokens=3)
    before = lm.logits(ids)
    assert torch.equal(hw.load(folder).logits(ids), before)


def test_only_the_weights_that_compute_are_returned(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    lm = hw.load(tmp_path / "model")
    ids = torch.tensor([[1, 2, 3]])
    before = lm.logits(ids)
    other = build_model(lm.config, seed=2)
    save_model(other, tmp_path / "model", tokenizer=lm.tokenizer)
    for ask in (lambda: lm.model, lambda: lm.save(tmp_path / "copy")):
        with pytest.raises(FolderError, match="have changed since the model was loaded; expected"):
            ask()
    assert torch.equal(lm.logits(ids), before)
    assert torch.equal(hw.load(tmp_path / "model").model.tokens.weight, other.tokens.weight)


def test_a_module_in_somebodys_hands_is_not_taken_apart(folder: Path) -> None:
    lm = hw.load(folder)
    ids = torch.tensor([[1, 2, 3]])
    model = lm.model
    lm.generate("the river", max_tokens=3)
    torch.testing.assert_close(model(ids), lm.logits(ids))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_trained_weights_are_used_and_saved(folder: Path, tmp_path: Path, precision: str) -> None:
    options = {"max_tokens": 12, "min_tokens": 12, "temperature": 0, "top_k": 0}
    pair = [("the river", " runs")]
    ids = torch.tensor([[1, 2, 3]])

    def results(lm: LanguageModel) -> tuple[str, list[tuple[float, bool]], list[float]]:
        return lm.generate("the river", **options), lm.score(pair), lm.logits(ids).flatten().tolist()

    lm = hw.load(folder, precision=precision)
    untrained = results(lm)  # before the module is asked for
    model = lm.model
    assert results(lm) == untrained
    for step in range(2):
        before = results(lm)
        train(model)
        assert results(lm) == before
        lm = LanguageModel(model, lm.tokenizer, precision=precision)
        after = results(lm)
        assert after != before
        lm.save(tmp_path / str(step))
        assert results(hw.load(tmp_path / str(step), precision=precision)) == after
    assert torch.equal(hw.load(tmp_path / "1", precision=precision).model.tokens.weight, model.tokens.weight)


def train(model: torch.nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(torch.tensor([[5, 6, 7]]))[0].logsumexp(-1).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("call", [LanguageModel.generate, LanguageModel.stream])
def test_defaults_are_temperature_0_8_top_k_40_and_a_new_seed(
    lm: LanguageModel, call: Callable[..., object]
) -> None:
    options = {"max_tokens": 30, "min_tokens": 30, "seed": 5}
    assert "".join(call(lm, "the river", **options)) == lm.generate(
        "the river", temperature=0.8, top_k=40, **options
    )
    with pytest.raises(UsageError, match="top_kk"):
        call(lm, "the river", top_kk=3)
    assert len({"".join(call(lm, "the river", max_tokens=30, min_tokens=30)) for _ in range(3)}) == 3


def test_leaving_a_stream_frees_its_slot(lm: LanguageModel) -> None:
    for _ in lm.stream("the river", max_tokens=40, min_tokens=40):
        break
    assert lm.engine.load == (0, 0)
    stream = lm.stream("the river", max_tokens=40)
    assert lm.engine.load == (0, 1)
    del stream
    assert lm.engine.load == (0, 0)


def test_a_failed_call_leaves_no_request_behind(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="context"):
        lm.generate(["the river", "the river " * 100])
    assert lm.engine.load == (0, 0)
    step, steps = lm.engine.step, 0

    def interrupted() -> bool:
        nonlocal steps
        steps += 1
        if steps == 5:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(lm.engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lm.generate(["the river"] * 20, max_tokens=40, min_tokens=40)
    assert lm.engine.load == (0, 0)


def test_an_empty_prompt_begins_a_text(lm: LanguageModel) -> None:
    assert lm.request("").prompt == (lm.tokenizer.end_of_text,)


def test_scores_and_logits_are_of_the_same_model(lm: LanguageModel) -> None:
    ids = lm.tokenizer.encode("the river runs")
    head, tail = lm.scorer.encode_pairs([("the river", " runs")])[0]
    logits = lm.logits(torch.tensor([ids]))
    assert logits.shape == (1, len(ids), lm.model.config.vocabulary)
    assert logits.dtype == torch.float32
    rows = logits[0, len(head) - 1 : -1].log_softmax(-1)
    expected = sum(float(row[token]) for row, token in zip(rows, tail, strict=True))
    assert lm.score([("the river", " runs")])[0][0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_each_precision_generates(folder: Path, precision: str) -> None:
    lm = hw.load(folder, precision=precision)
    assert lm.precision == precision
    assert lm.generate("the river", max_tokens=5, seed=1) == lm.generate("the river", max_tokens=5, seed=1)


def test_wrong_calls_are_named(lm: LanguageModel, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown key 'max_token'\. Did you mean 'max_tokens'"):
        lm.generate("the", max_token=5)
    with pytest.raises(UsageError, match=r"unknown key 'temprature'\. Did you mean 'temperature'"):
        lm.submit("the", temprature=1)
    with pytest.raises(UsageError, match="temperature"):
        lm.generate("the", temperature=-1)
    with pytest.raises(UsageError, match="shape"):
        lm.logits(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(UsageError, match="out of range"):
        lm.logits(torch.tensor([[10_000]]))
    with pytest.raises(UsageError, match="precision"):
        hw.load(folder, precision="fp8")
    with pytest.raises(FolderError, match=r"config\.json"):
        hw.load(tmp_path)
    with pytest.raises(FolderError, match="does not exist"):
        hw.load("./nowhere")
    with pytest.raises(ResourceError, match="hub"):
        hw.load("nobody/nothing")


def test_a_model_without_a_tokenizer_refuses_only_text(lm: LanguageModel, folder: Path, tmp_path: Path) -> None:
    save_model(lm.model, tmp_path)
    bare = hw.load(tmp_path)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(bare.logits(ids), lm.logits(ids))
    for call in (lambda: bare.generate("the"), lambda: bare.score([("a", "b")]), lambda: bare.tokenizer):
        with pytest.raises(MismatchError, match=r"has no tokenizer.*--tokenizer DIR") as refused:
            call()
        assert "tokenizer train" not in str(refused.value)
        assert "headwater convert MODEL NEW" in str(refused.value)
    with pytest.raises(MismatchError, match="--tokenizer DIR"):
        hw.Tokenizer.load(tmp_path)
    given = hw.load(tmp_path, tokenizer=folder)
    assert given.generate("the", max_tokens=5, seed=1) == lm.generate("the", max_tokens=5, seed=1)


def test_a_tokenizer_of_another_size_is_refused(lm: LanguageModel, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    save_model(lm.model, tmp_path / "bare")
    for size in (270, 300):
        other = hw.Tokenizer.train(TEXTS * 9, kind="gpt2", vocab_size=size, special_tokens=["<|endoftext|>"])
        (tmp_path / str(size)).mkdir()
        other.save(tmp_path / str(size))
        with pytest.raises(MismatchError, match=f"has {other.vocabulary_size} tokens, and the model .* 280 rows"):
            hw.load(tmp_path / "bare", tokenizer=tmp_path / str(size))


def test_a_tokenizer_larger_than_the_model_is_refused(lm: LanguageModel) -> None:
    small = build_model(preset("gpt2-pico", vocabulary=260), seed=1)
    with pytest.raises(MismatchError, match="rows"):
        LanguageModel(small, lm.tokenizer).generate("the")


def test_public_names_cost_nothing_until_used() -> None:
    code = "import sys, headwater; assert 'torch' not in sys.modules; print(' '.join(headwater.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"load", "Tokenizer", "Classifier"} <= set(done.stdout.split())
    with pytest.raises(AttributeError, match="nothing_here"):
        hw.nothing_here  # noqa: B018


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_save_writes_the_weights_that_were_read(folder: Path, tmp_path: Path, precision: str) -> None:
    lm = hw.load(folder, precision=precision)
    lm.save(tmp_path / "before")
    lm.generate("the river", max_tokens=3)
    lm.save(tmp_path / "after")
    for name in ("before", "after"):
        saved, read = ((path / "model.safetensors").read_bytes() for path in (tmp_path / name, folder))
        assert saved == read


def test_fill_refuses_before_the_model_is_read_again(folder: Path) -> None:
    lm = hw.load(folder)
    lm.generate("the river", max_tokens=3)
    with pytest.raises(UsageError, match="does not fill blanks"):
        lm.fill("the [MASK]")
    assert lm._model is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_pickle_needs_no_folder_and_answers_as_before(folder: Path, tmp_path: Path, precision: str) -> None:
    shutil.copytree(folder, tmp_path / "model")
    lm = hw.load(tmp_path / "model", precision=precision)
    text = lm.generate("the river", max_tokens=9, seed=1)
    data = pickle.dumps(lm)
    shutil.rmtree(tmp_path / "model")
    assert pickle.loads(data).generate("the river", max_tokens=9, seed=1) == text


def test_a_file_overwritten_in_place_does_not_reach_an_open_network(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    lm = hw.load(tmp_path / "model")
    before = lm.score([("the river", " runs")])
    weights = tmp_path / "model" / "model.safetensors"
    with weights.open("r+b") as handle:
        handle.seek(weights.stat().st_size // 2)
        handle.write(bytes(weights.stat().st_size // 2))
    assert lm.score([("the river", " runs")]) == before
    assert hw.load(tmp_path / "model").score([("the river", " runs")]) != before


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_memory_is_free_without_the_garbage_collector(
    folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "torch":
        monkeypatch.setattr(headwater.inference.backends, "supported", lambda model: False)
    lm = hw.load(folder)
    lm.generate(["the river", "a stone"], max_tokens=3)
    lm.score([("the river", " runs")])
    objects = [
        weakref.ref(each) for each in (lm, lm.network, lm.engine.runner, lm.engine, lm.scorer, lm.tokenizer)
    ]
    gc.disable()
    try:
        del lm
        assert [each() for each in objects] == [None] * len(objects)
    finally:
        gc.enable()


def test_text_without_tokens_and_empty_texts_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = hw.Tokenizer.train(TEXTS, kind="gpt1", vocab_size=60)
    lm = LanguageModel(build_model(preset("gpt1-nano", vocabulary=60, context=32), seed=1), tokenizer)
    lm.generate("the 강물", max_tokens=1)
    lm.score([("the 강물", " runs")])
    lm.embed(["the 강물"])
    unknown = "Text without a token of its own: <unk> is 2 of {} tokens"
    assert [record.message for record in caplog.records] == [unknown.format(n) for n in (3, 4, 3)]
    caplog.clear()
    hw.load("gpt2-mini").embed(["the river", " "])
    assert [record.message for record in caplog.records] == [
        "empty texts: 1 of 2; each gets the vector of an empty text"
    ]
