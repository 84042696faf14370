"""The API as its clients see it: the openai package, and plain HTTP where that package is not in the way."""

from __future__ import annotations

import base64
import json
import math
import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch

import headwater as hw
from headwater.finetuning import FineTuned, Raw
from headwater.inference import LanguageModel, uniform
from headwater.tokenizer import TASK_TOKENS


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[openai.OpenAI]:
    with (
        httpx.Client(trust_env=False) as plain,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, http_client=plain) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def lm(base_folder: Path) -> LanguageModel:
    return hw.load(base_folder)


def test_a_completion_is_what_the_model_generates(client: openai.OpenAI, lm: LanguageModel) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 0.8, "top_p": 0.9, "seed": 5}
    answer = client.completions.create(model="base", prompt=["the river", "a stone"], n=2, **options)
    expected = [lm.generate(p, sample=s, top_k=0, **options) for p in ("the river", "a stone") for s in (0, 1)]
    assert [choice.text for choice in answer.choices] == expected
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2 * sum(len(lm.tokenizer.encode(t)) for t in ("the river", "a stone")) / 2


def test_both_unicode_forms_of_a_text_have_the_same_answer(client: openai.OpenAI) -> None:
    texts = [unicodedata.normalize(form, "긍정 é") for form in ("NFC", "NFD")]
    one, other = client.embeddings.create(model="base", input=texts).data
    assert one.embedding == other.embedding
    options: dict[str, Any] = {"model": "base", "max_tokens": 8, "seed": 1, "echo": True, "logprobs": 1}
    answer = client.completions.create(prompt=texts, **options)
    assert answer.choices[0].logprobs == answer.choices[1].logprobs
    assert answer.choices[1].text.startswith(texts[0])


def test_a_top_p_of_zero_takes_the_most_probable_token(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "base", "prompt": "the river", "max_tokens": 12}
    texts = [
        client.completions.create(**options, **one).choices[0].text for one in ({"top_p": 0}, {"temperature": 0})
    ]
    assert texts[0] == texts[1]


def test_a_stream_joins_to_the_same_answer(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "base", "prompt": "the river", "max_tokens": 20, "seed": 5, "logprobs": 3}
    options |= {"n": 2, "echo": True, "stop": ["zz", "e "]}
    whole = client.completions.create(**options)
    chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == choice.index]
        assert "".join(c.text for c in mine) == choice.text
        assert [c.finish_reason for c in mine if c.finish_reason] == [choice.finish_reason]
        assert choice.logprobs is not None
        assert [t for c in mine if c.logprobs for t in c.logprobs.tokens or []] == choice.logprobs.tokens
    assert chunks[-1].usage == whole.usage


def test_log_probabilities_of_prompt_and_text_are_the_models(client: openai.OpenAI, lm: LanguageModel) -> None:
    text = "the river runs"
    answer = client.completions.create(
        model="base",
        prompt=text,
        max_tokens=4,
        temperature=0,
        logprobs=2,
        echo=True,
        extra_body={"return_token_ids": True},
    )
    choice = answer.choices[0]
    assert choice.text.startswith(text)
    assert choice.logprobs is not None
    more: Any = choice.model_extra
    assert more["prompt_token_ids"] == lm.tokenizer.encode(text)
    ids = [*more["prompt_token_ids"], *more["token_ids"]]
    rows = lm.logits(torch.tensor([ids]))[0].log_softmax(-1)
    expected = [float(rows[place - 1, token]) for place, token in enumerate(ids)][1:]
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=1e-4)
    for token, offset in zip(choice.logprobs.tokens or [], choice.logprobs.text_offset or [], strict=True):
        assert token.startswith("bytes:") or choice.text[offset:].startswith(token)
    for token, top in zip(choice.logprobs.tokens or [], choice.logprobs.top_logprobs or [], strict=True):
        if top:  # the two likeliest, and the token itself if it is neither
            assert len(top) == 2 + (token not in sorted(top, key=lambda other: -top[other])[:2])
            assert token in top


def test_offsets_count_text_that_may_become_a_stop_text(client: openai.OpenAI, lm: LanguageModel) -> None:
    token = lm.tokenizer.encode(" river")[0]
    text = lm.tokenizer.decode([token])
    [choice] = client.completions.create(
        model="base",
        prompt="the river",
        max_tokens=3,
        logit_bias={str(token): 100},
        logprobs=0,
        stop=f"{3 * text}!",
        temperature=0,
    ).choices
    assert choice.text == 3 * text
    assert choice.logprobs is not None
    assert choice.logprobs.text_offset == [9, 9 + len(text), 9 + 2 * len(text)]  # after the prompt


@pytest.mark.parametrize("best_of", [0, None])
def test_without_best_of_every_continuation_is_returned(client: openai.OpenAI, best_of: int | None) -> None:
    """OpenAI's schema has 0 as the least value, and vLLM reads it as not given."""
    answer = client.completions.create(model="base", prompt="the", max_tokens=2, n=2, best_of=best_of)
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_bias_and_penalties_change_the_text(client: openai.OpenAI, lm: LanguageModel) -> None:
    options: dict[str, Any] = {"model": "base", "prompt": "the river", "max_tokens": 12, "temperature": 0}
    token = lm.tokenizer.encode(" sea")[0]
    forced = client.completions.create(**options, logit_bias={str(token): 100}).choices[0].text
    assert forced == lm.tokenizer.decode([token]) * 12
    spread = client.completions.create(
        **options, logit_bias={str(token): 100}, frequency_penalty=2, extra_body={"return_token_ids": True}
    )
    assert spread.choices[0].model_extra["token_ids"][0] == token  # type: ignore[index]
    plain = client.completions.create(**options, extra_body={"return_token_ids": True}).choices[0]
    apart = client.completions.create(
        **options, presence_penalty=2, frequency_penalty=2, extra_body={"return_token_ids": True}
    ).choices[0]
    repeated = [len(set(c.model_extra["token_ids"])) for c in (plain, apart)]  # type: ignore[index]
    assert repeated[1] >= repeated[0]


def test_the_prompt_alone_can_be_scored(client: openai.OpenAI, lm: LanguageModel) -> None:
    context, continuation = lm.scorer.encode_pairs([("the river", " runs to")])[0]
    answer = client.completions.create(
        model="base", prompt=[*context, *continuation], max_tokens=0, echo=True, logprobs=1
    )
    assert answer.choices[0].logprobs is not None
    scores = answer.choices[0].logprobs.token_logprobs or []
    (expected, _) = lm.score([("the river", " runs to")])[0]
    assert sum(scores[len(context) :]) == pytest.approx(expected, abs=1e-4)


def test_models_are_listed_by_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [
        "base",
        "lstm",
        "classes",
        "entail",
        "similarity",
        "choice",
        "blanks",
        "speakers",
    ]
    assert client.models.retrieve("classes").model_extra["task"] == "classify"  # type: ignore[index]
    with pytest.raises(openai.NotFoundError, match="'base' or 'lstm' or 'classes' or 'entail'"):
        client.completions.create(model="other", prompt="the")


def test_embeddings_are_mean_final_states_of_length_1(
    client: openai.OpenAI, lm: LanguageModel, http: httpx.Client
) -> None:
    text = "the river runs"
    expected = lm.model.hidden(torch.tensor([lm.tokenizer.encode(text)]))[0].mean(0).tolist()
    found = client.embeddings.create(model="base", input=[text, "a"])  # asks for base64
    length = math.hypot(*expected)
    assert found.data[0].embedding == pytest.approx([value / length for value in expected], abs=1e-5)
    asked = {"input": text, "encoding_format": "base64", "normalize": False}
    raw = http.post("/v1/embeddings", json=asked).json()["data"][0]
    decoded = struct.unpack(f"<{len(expected)}f", base64.b64decode(raw["embedding"]))
    assert list(decoded) == pytest.approx(expected, abs=1e-5)


def test_classes_are_those_of_the_library(http: httpx.Client, task_folders: dict[str, Path]) -> None:
    rows = ["the river runs to the sea", "a stone"]
    asked = {"model": "classes", "input": rows, "explain": True}
    labels = http.post("/classify", json=asked).json()["data"]
    predicted = FineTuned.load(task_folders["classify"]).predict(
        Raw((row,), None, n) for n, row in enumerate(rows)
    )
    for label, prediction in zip(labels, predicted, strict=True):
        assert label["label"] == prediction.label
        assert label["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-5)
    assert "".join(word["text"] for word in labels[0]["words"]) == rows[0]
    assert all(isinstance(word["log_odds"], float) for word in labels[0]["words"])
    assert labels[0]["saturated"] is False
    assert http.post("/classify", json={"model": "base", "input": "the"}).status_code == 400
    error = http.post("/classify", json={"model": "classes", "input": ["the", " ", None]}).json()["error"]
    assert (error["param"], error["message"]) == ("input", "input[2]: Input should be a valid string.")


def test_an_added_token_is_one_token_in_prompts_and_stops(http: httpx.Client, speakers_folder: Path) -> None:
    tokenizer = hw.Tokenizer.load(speakers_folder)
    speaker = tokenizer.special_tokens["<speaker1>"]
    text = "<speaker1> the river"
    ids = [speaker, *tokenizer.encode(" the river")]
    asked: dict[str, Any] = {"model": "speakers", "prompt": text}
    assert http.post("/tokenize", json=asked).json()["tokens"] == ids
    # A bias makes the model say nothing else.
    asked |= {"max_tokens": 3, "temperature": 0, "logit_bias": {str(speaker): 100}}
    for stop, said, reason in ((None, "<speaker1>" * 3, "length"), ("<speaker1>", "", "stop")):
        answer = http.post("/v1/completions", json=asked | {"stop": stop}).json()
        assert answer["usage"]["prompt_tokens"] == len(ids)
        assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == (said, reason)


def test_classify_reports_how_much_it_cut(http: httpx.Client) -> None:
    rows = ["the river", "the river runs to the sea. " * 20]
    found = http.post("/classify", json={"model": "classes", "input": rows}).json()["data"]
    assert found[0]["tokens_cut"] == 0
    tokens = http.post("/tokenize", json={"model": "classes", "prompt": rows[1]}).json()
    assert found[1]["tokens_cut"] == tokens["count"] - (64 - 2)


@pytest.mark.parametrize(
    ("model", "row", "count"),
    [("classes", ["a"], 1), ("choice", ["the river", "to what?", "the sea", "a stone"], 2)],
)
def test_rows_and_answers_of_a_request_are_bounded(
    http: httpx.Client, model: str, row: list[str], count: int
) -> None:
    """The answers of one row were unlimited, and kept the model's second thread for long."""
    one_row = [*row[:2], *["a"] * 1_025] if model == "choice" else None
    for rows in ([row] * (1_024 // count + 1), [one_row] if one_row else [row] * 1_025):
        answer = http.post("/classify", json={"model": model, "input": rows})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
        assert "the most is 1,024" in answer.json()["error"]["message"]


def test_a_row_with_a_lone_surrogate_is_refused(http: httpx.Client) -> None:
    asked = b'{"model": "classes", "input": "a \\ud800"}'
    answer = http.post("/classify", content=asked, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "lone surrogate" in answer.json()["error"]["message"]


def test_a_row_without_text_is_not_classified(http: httpx.Client) -> None:
    asked = {"model": "classes", "input": ["the river", " "], "explain": True}
    found = http.post("/classify", json=asked).json()["data"]
    assert found[0]["label"] is not None
    assert (found[1]["label"], found[1]["probabilities"], found[1]["words"]) == (None, {}, None)


def test_the_tokenizer_is_there_for_remote_clients(http: httpx.Client, lm: LanguageModel) -> None:
    text = "the river 日本"
    asked = {"model": "base", "prompt": text, "add_special_tokens": True, "return_token_strs": True}
    found = http.post("/tokenize", json=asked).json()
    ids = lm.tokenizer.encode(text)
    assert (found["tokens"], found["count"], found["max_model_len"]) == (ids, len(ids), 64)
    assert found["token_strs"] == [lm.tokenizer.vocabulary.tokens[token] for token in ids]
    named = "the river<|endoftext|>"
    counts = [len(lm.tokenizer.encode(named, allow_special=allowed)) for allowed in (True, False)]
    answer = http.post("/v1/completions", json={"prompt": named, "max_tokens": 1}).json()
    tokens = http.post("/tokenize", json={"model": "base", "prompt": named}).json()
    assert [tokens["count"], answer["usage"]["prompt_tokens"]] == counts
    assert counts[0] < counts[1]
    info = http.get("/tokenizer_info").json()
    assert (info["eos_token"], info["bos_token"]) == ("<|endoftext|>", "<|endoftext|>")
    assert http.get("/v1/models/base").json()["max_model_len"] == 64


def test_vllms_parameters_decide_what_is_written(http: httpx.Client, lm: LanguageModel) -> None:
    body = {"prompt": "the river", "max_tokens": 12, "seed": 5, "return_token_ids": True}

    def ids(**options: Any) -> list[int]:
        answer = http.post("/v1/completions", json={**body, **options}).json()
        return list(answer["choices"][0]["token_ids"])

    plain = ids()
    assert ids(top_k=-1) == ids(top_k=0) == ids(min_p=0) == ids(add_special_tokens=False) == plain
    assert ids(min_p=1) == ids(temperature=0)
    stop = plain[4]
    assert ids(stop_token_ids=[stop]) == plain[: plain.index(stop) + 1]
    end = lm.tokenizer.end_of_text
    bias = {str(end): 100}
    assert ids(logit_bias=bias) == [end]
    assert ids(logit_bias=bias, ignore_eos=True) == [end] * 12
    assert ids(logit_bias=bias, stop_token_ids=[plain[0]], min_tokens=3)[:3].count(end) == 0


def test_a_chat_is_refused_with_the_reason(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="continue a text and were not trained on chats") as raised:
        client.chat.completions.create(model="base", messages=[{"role": "user", "content": "hello"}])
    assert raised.value.code == "chat_not_supported"


def test_a_missing_model_is_typed_as_openai_types_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("nothing")
    assert (raised.value.code, raised.value.type) == ("model_not_found", "invalid_request_error")
    assert "there is no model 'nothing'; expected 'base'" in raised.value.message
    assert "GET /v1/models lists them." in raised.value.message


def test_a_text_that_is_too_long_is_one_error_everywhere(http: httpx.Client) -> None:
    long = "the river " * 100
    found = [
        http.post("/v1/completions", json={"prompt": long}).json()["error"],
        http.post("/v1/completions", json={"prompt": long, "max_tokens": 0, "echo": True, "logprobs": 1}).json()[
            "error"
        ],
        http.post("/v1/embeddings", json={"input": long}).json()["error"],
        http.post("/inspect", json={"prompt": long}).json()["error"],
    ]
    assert {error["code"] for error in found} == {"context_length_exceeded"}
    assert len({error["message"].replace("the input has", "the prompt has") for error in found}) == 1


def test_prompts_that_are_scored_only_need_no_slots(http: httpx.Client) -> None:
    body = {"prompt": ["the river"] * 200, "max_tokens": 0, "echo": True, "logprobs": 1}
    assert len(http.post("/v1/completions", json=body).json()["choices"]) == 200


@pytest.mark.parametrize("other", [{"max_tokens": 3}, {"max_tokens": None}, {"n_predict": 3}])
def test_max_completion_tokens_may_be_next_to_its_other_names(http: httpx.Client, other: dict[str, Any]) -> None:
    body = {"prompt": "the river", "temperature": 0, "ignore_eos": True, "max_completion_tokens": 3, **other}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 3


def test_texts_that_the_model_would_cut_are_not_embedded(http: httpx.Client) -> None:
    """A masked model reads [CLS] and [SEP] too; the ends of texts were left out without a word."""
    for tokens, status in ((38, 200), (39, 400)):
        answer = http.post("/v1/embeddings", json={"model": "blanks", "input": "the " * tokens})
        assert answer.status_code == status
        if status == 400:
            assert answer.json()["error"]["code"] == "context_length_exceeded"
        else:
            assert answer.json()["usage"]["prompt_tokens"] == tokens


def test_max_tokens_null_is_the_default(http: httpx.Client) -> None:
    counts = [
        http.post("/v1/completions", json={"prompt": "the", "ignore_eos": True, **more}).json()["usage"]
        for more in ({}, {"max_tokens": None})
    ]
    assert [usage["completion_tokens"] for usage in counts] == [16, 16]


def test_streams_pass_through_proxies_at_once(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "the", "max_tokens": 1, "stream": True})
    assert answer.headers["x-accel-buffering"] == "no"


def test_metrics_have_path_and_model(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "the", "max_tokens": 1})
    text = http.get("/metrics").text
    assert 'headwater_request_seconds_count{model="base",path="/v1/completions"}' in text
    assert 'headwater_first_token_seconds_bucket{le="0.005",model="base",path="/v1/completions"}' in text
    assert 'headwater_requests_total{model="base",path="/v1/completions",status="200"}' in text


PARTS = {
    "entail": ["the river runs", "a stone lies"],
    "similarity": ["the river runs", "a stone lies"],
    "choice": ["the river runs", "to what?", "the sea", "a stone"],
}


@pytest.mark.parametrize("task", list(PARTS))
def test_every_task_is_answered(http: httpx.Client, task_folders: dict[str, Path], task: str) -> None:
    parts = PARTS[task]
    found = http.post("/classify", json={"model": task, "input": [parts, parts[::-1]], "explain": True}).json()
    predicted = list(
        FineTuned.load(task_folders[task]).predict([Raw(tuple(p), None, 0) for p in (parts, parts[::-1])])
    )
    assert [row["label"] for row in found["data"]] == [p.label for p in predicted]
    assert {word["segment"] for word in found["data"][0]["words"]} >= {0, 1}
    alone = http.post("/classify", json={"model": task, "input": parts}).json()
    assert alone["data"][0]["probabilities"] == pytest.approx(predicted[0].probabilities, abs=1e-5)
    assert http.post("/classify", json={"model": task, "input": "the river"}).status_code == 400


def test_inspection_agrees_with_the_model(http: httpx.Client, lm: LanguageModel) -> None:
    ids = lm.tokenizer.encode("the river runs")
    asked = {"prompt": ids, "window": 3, "details": True, "target": 7, "seed": 4, "step": 2}
    found = http.post("/inspect", json=asked).json()
    config = lm.model.config
    weights = torch.tensor(found["attention"])
    assert weights.shape == (config.layers, config.heads, len(ids))
    assert torch.allclose(weights.sum(-1), torch.ones(config.layers, config.heads), atol=1e-3)
    recent = np.frombuffer(base64.b64decode(found["recent"]["data"]), np.uint8)
    recent = recent.reshape(config.layers, config.heads, 3, 3)
    assert found["recent"]["start"] == len(ids) - 3
    assert recent[:, :, 2] / 255 == pytest.approx(weights[:, :, -3:].numpy(), abs=0.003)
    assert not recent[:, :, 0, 1:].any()  # nothing attends to what comes later
    logits = lm.logits(torch.tensor([ids]))[0, -1]
    assert np.frombuffer(base64.b64decode(found["logits"]), "<f4") == pytest.approx(logits.numpy(), abs=1e-4)
    last = logits.softmax(-1)
    top = found["layers"][-1][0]
    assert top["token"] == int(last.argmax())
    assert top["probability"] == pytest.approx(float(last.max()), abs=1e-5)
    assert len(found["layers"]) == config.layers + 1
    assert found["target"]["ranks"][-1] == 1 + int((logits > logits[7]).sum())
    assert found["target"]["probabilities"][-1] == pytest.approx(float(last[7]), abs=1e-5)
    rows = [torch.tensor(found["embeddings"][name]) for name in ("token", "position")]
    assert float((rows[0] + rows[1]).norm()) == pytest.approx(found["norms"][0], abs=1e-2)
    assert np.shape(found["writes"]) == (config.layers, 2)
    assert found["uniform"] == uniform(4, 0, 2)


def test_a_head_and_its_mlp_are_described_in_numbers_that_agree(http: httpx.Client, lm: LanguageModel) -> None:
    ids, config = lm.tokenizer.encode("the river runs to the sea. a stone lies"), lm.model.config
    short = http.post("/inspect", json={"prompt": ids[:6], "head": [0, 0]}).json()["head"]
    assert short["others"] == pytest.approx(0, abs=1e-5)  # all are listed: their values add up to the output
    summed = sum(one["weight"] * np.array(one["value"]) for one in short["attended"])
    assert summed == pytest.approx(short["output"], abs=2e-3)
    asked = {"prompt": ids, "head": [1, config.heads - 1], "units": 3, "target": 7}
    found = http.post("/inspect", json=asked).json()
    head, mlp = found["head"], found["mlp"]
    assert (head["layer"], head["head"], mlp["layer"], mlp["pre_norm"]) == (1, config.heads - 1, 1, True)
    assert head["attended"][-1]["position"] == len(ids) - 1
    for one in head["attended"]:
        assert one["product"] == pytest.approx(np.dot(head["query"], one["key"]), abs=2e-3)
        assert one["scaled"] == pytest.approx(one["product"] / len(head["query"]) ** 0.5, abs=1e-3)
        assert one["weight"] == pytest.approx(found["attention"][1][-1][one["position"]], abs=1e-4)
    assert sum(one["weight"] for one in head["attended"]) + head["others"] == pytest.approx(1, abs=1e-4)
    assert (mlp["hidden"], len(mlp["units"])) == (config.mlp_width, 3)
    for unit in mlp["units"]:
        raised = [one["logit"] for one in unit["raised"]]
        assert raised == sorted(raised, reverse=True)
        assert unit["lowered"][0]["logit"] <= unit["target"] <= raised[0]
    plain = http.post("/inspect", json={"prompt": ids}).json()
    assert plain["head"] is plain["mlp"] is None
    wrong = http.post("/inspect", json={**asked, "head": [0, config.heads]})
    assert wrong.json()["error"]["param"] == "head"


def test_a_token_after_a_full_context_can_be_inspected(http: httpx.Client, lm: LanguageModel) -> None:
    ids = (lm.tokenizer.encode("the river runs to the sea. ") * 20)[: lm.model.config.context + 1]
    found = http.post("/inspect", json={"prompt": ids, "position": len(ids) - 2}).json()
    assert found["target"]["token"] == ids[-1]
    assert http.post("/inspect", json={"prompt": ids}).status_code == 400


def test_without_its_heads_a_layer_has_no_attention(http: httpx.Client, lm: LanguageModel) -> None:
    config = lm.model.config
    asked: dict[str, Any] = {"prompt": "the river runs", "details": True, "continuation": 6}
    whole = http.post("/inspect", json=asked).json()
    greedy = {"prompt": "the river runs", "max_tokens": 6, "temperature": 0, "return_token_ids": True}
    expected = http.post("/v1/completions", json=greedy).json()["choices"][0]
    assert whole["continuation"] == {"token_ids": expected["token_ids"], "text": expected["text"]}
    off = [[0, head] for head in range(config.heads)]
    found = http.post("/inspect", json={**asked, "heads_off": off}).json()
    bias = lm.model.blocks[0].attention.projection.bias
    assert found["writes"][0][0] == pytest.approx(float(bias.detach().norm()), abs=1e-4)
    assert found["logits"] != whole["logits"]
    assert http.post("/inspect", json=asked).json() == whole
    wrong = http.post("/inspect", json={**asked, "heads_off": [[config.layers, 0]]})
    assert wrong.json()["error"]["param"] == "heads_off"


def test_a_fine_tuned_model_writes_none_of_its_task_tokens(
    http: httpx.Client, task_folders: dict[str, Path]
) -> None:
    tokenizer = hw.Tokenizer.load(task_folders["classify"])
    names = [name for name in TASK_TOKENS if name in tokenizer.special_tokens]
    asked = {"model": "classes", "prompt": "the", "max_tokens": 60, "return_token_ids": True, "n": 4, "seed": 1}
    high = {str(tokenizer.special_tokens[name]): 100 for name in names}
    for bias in ({}, high):  # a client that asks for them gets them
        answer = http.post("/v1/completions", json={**asked, "temperature": 50, "logit_bias": bias}).json()
        written = {token for choice in answer["choices"] for token in choice["token_ids"]}
        found = written & {int(token) for token in high}
        assert bool(found) == bool(bias)


BAD: list[tuple[str, Any]] = [
    ("prompt", {"prompt": []}),
    ("prompt", {"prompt": [1, "a"]}),
    ("prompt", {"prompt": [99999]}),
    ("prompt", {"prompt": "the river " * 100, "max_tokens": 1}),
    ("prompt", {"prompt": "\ud800"}),
    ("max_tokens", {"max_tokens": 5000}),
    ("max_tokens", {"max_tokens": "5"}),
    ("max_completion_tokens", {"max_tokens": 5, "max_completion_tokens": 6}),
    ("n_predict", {"max_completion_tokens": 5, "n_predict": 6}),
    ("min_tokens", {"min_tokens": 9, "max_tokens": 5}),
    ("min_tokens", {"min_tokens": 1, "stop_token_ids": list(range(280))}),
    ("max_tokens", {"max_tokens": -2}),
    ("temperature", {"temperature": -0.1}),
    ("top_p", {"top_p": -0.1}),
    ("n", {"n": 0}),
    ("best_of", {"n": 3, "best_of": 2}),
    ("stop", {"stop": ""}),
    ("suffix", {"suffix": "end"}),
    ("logit_bias", {"logit_bias": {"100000": 1}}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("logit_bias", {"logit_bias": {str(token): 1 for token in range(1_025)}}),
    ("stop_token_ids", {"stop_token_ids": [100_000]}),
    ("min_p", {"min_p": 1.5}),
    ("top_k", {"top_k": -2}),
    ("logprobs", {"logprobs": 1000}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("tempereture", {"tempereture": 1}),
    ("model", {"model": "none"}),
]


@pytest.mark.parametrize(("param", "body"), BAD, ids=[f"{p}-{n}" for n, (p, _) in enumerate(BAD)])
def test_a_wrong_value_is_named(http: httpx.Client, param: str, body: dict[str, Any]) -> None:
    sent = json.dumps({"model": "base", "prompt": "the", **body}).encode()
    answer = http.post("/v1/completions", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == (404 if param == "model" else 400)
    error = answer.json()["error"]
    assert error["param"] == param, error
    assert error["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "cut", "list", "null", "text", "binary", "not-utf-8", "deep", "huge-number"],
)
def test_a_malformed_body_is_refused_in_the_apis_format(http: httpx.Client, content: bytes) -> None:
    answer = http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("key", ["x", "1_0", "1.0", " 7", "\uff19", ""])
def test_a_key_of_logit_bias_that_is_not_a_token_id_is_named(http: httpx.Client, key: str) -> None:
    answer = http.post("/v1/completions", json={"model": "base", "prompt": "the", "logit_bias": {key: 1}})
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (400, f"logit_bias: {key!r} is not a token id.")


def test_other_paths_methods_and_hosts_are_refused(http: httpx.Client) -> None:
    assert http.get("/nothing").json()["error"]["type"] == "invalid_request_error"
    assert http.get("/v1/completions").status_code == 405
    assert http.post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
    assert http.get("/health", headers={"host": "example.org"}).status_code == 403
    for name in ("..%2f__init__.py", "%2e%2e", "other.js"):
        assert http.get(f"/page/{name}").status_code == 404


def test_an_lstm_is_served_and_has_no_attention_to_show(http: httpx.Client, lstm_folder: Path) -> None:
    lm = hw.load(lstm_folder)
    body = {"model": "lstm", "prompt": "the river", "max_tokens": 8, "seed": 3, "top_k": 40, "temperature": 0.8}
    answer = http.post("/v1/completions", json=body | {"echo": True, "logprobs": 1}).json()["choices"][0]
    assert answer["text"] == "the river" + lm.generate("the river", max_tokens=8, seed=3)
    ids = lm.tokenizer.encode("the river")
    (scores,) = lm.scorer.token_scores([(ids[:1], ids[1:])])
    assert answer["logprobs"]["token_logprobs"][1 : len(ids)] == pytest.approx(
        scores.log_probability.tolist(), abs=1e-5
    )
    found = http.post("/v1/embeddings", json={"model": "lstm", "input": "the river"}).json()
    assert len(found["data"][0]["embedding"]) == lm.config.width
    refused = http.post("/inspect", json={"model": "lstm", "prompt": "the river"})
    assert (refused.status_code, "no attention" in refused.text) == (400, True)
