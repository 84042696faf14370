"""What the tests of vLLM ask on the routes that this server has, in our own words.

Different on purpose:

- `text_offset` counts from the start of the prompt, as in OpenAI's API, where vLLM counts from that of the answer;
- an empty prompt begins a new text, where vLLM refuses it;
- a `logprobs` above 20 and `-1` (all tokens) are refused;
- `/classify` has `probabilities` by name, where vLLM has `probs` by position, and refuses an empty list;
- errors have OpenAI's types.

Refused by name, or accepted with the value that asks for nothing: `REFUSED`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

# Fields that this server does not support: values that ask for nothing, and one that asks for something.
REFUSED: dict[str, tuple[list[Any], Any]] = {
    "include_stop_str_in_output": ([False, None], True),
    "skip_special_tokens": ([True, None], False),
    "truncate_prompt_tokens": ([None], 5),
    "allowed_token_ids": ([None], [5]),
    "bad_words": ([[], None], ["river"]),
    "logprob_token_ids": ([None], [5]),
    "logits_processors": ([[], None], ["mine"]),
    "response_format": ([{"type": "text"}, None], {"type": "json_object"}),
    "structured_outputs": ([None], {"regex": "a+"}),
    "prompt_embeds": ([[], None], "AAAA"),
    "priority": ([0], 1),
    "stream_interval": ([1, None], 5),
    "repetition_detection": ([None], {"max_pattern_size": 3}),
    "cache_salt": ([None], "salt"),
    "return_token_offsets": ([False, None], True),
    "thinking_token_budget": ([-1, None], 100),
    "watermarking": ([False, None], True),
    "kv_transfer_params": ([None], {"a": 1}),
    "ec_transfer_params": ([None], {"a": 1}),
    "vllm_xargs": ([None], {"a": 1}),
    "routed_experts_prompt_start": ([0], 3),
    "return_mm_kwargs": ([True], False),
    "prompt_logprobs": ([None], 2),
    "return_tokens_as_token_ids": ([False, None], True),
    "request_id": ([None], "mine"),
}
# Fields that change nothing here, whatever their value.
IDLE: dict[str, Any] = {
    "add_special_tokens": True,
    "spaces_between_special_tokens": False,
    "truncation_side": "left",
    "session_id": "a",
    "user": "me",
    "use_beam_search": False,
    "length_penalty": 1.0,
}


def complete(http: httpx.Client, **options: Any) -> dict[str, Any]:
    answer = http.post("/v1/completions", json={"model": "base", "prompt": "the river", **options})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def choice(http: httpx.Client, **options: Any) -> dict[str, Any]:
    return dict(complete(http, **options)["choices"][0])


def chunks(http: httpx.Client, **options: Any) -> list[dict[str, Any]]:
    body = {"model": "base", "prompt": "the river", "stream": True, **options}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    lines = answer.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@pytest.mark.parametrize("field", list(REFUSED))
def test_an_unsupported_field_is_accepted_at_its_default(http: httpx.Client, field: str) -> None:
    neutral, asking = REFUSED[field]
    plain = choice(http, seed=1, max_tokens=4)
    for value in neutral:
        assert choice(http, seed=1, max_tokens=4, **{field: value}) == plain
    error = http.post("/v1/completions", json={"prompt": "the", field: asking}).json()["error"]
    assert error["param"] == field
    assert error["code"] == "unknown_parameter"


def test_fields_without_effect_change_nothing(http: httpx.Client) -> None:
    assert choice(http, seed=1, max_tokens=4, **IDLE) == choice(http, seed=1, max_tokens=4)


def test_token_counts_are_those_of_prompt_and_answer(http: httpx.Client) -> None:
    answer = complete(http, prompt=[5, 6, 7, 8, 9], max_tokens=5, temperature=0, ignore_eos=True)
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("count", [0, 1, 5])
def test_logprobs_have_the_requested_tokens(http: httpx.Client, count: int) -> None:
    logprobs = choice(http, max_tokens=5, logprobs=count, echo=True)["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    for top in logprobs["top_logprobs"][1:]:
        assert max(count, 1) <= len(top) <= count + 1


@pytest.mark.parametrize("count", [-1, 21])
def test_too_many_logprobs_are_refused_streamed_or_not(http: httpx.Client, count: int) -> None:
    for stream in (False, True):
        body = {"prompt": "the", "logprobs": count, "stream": stream}
        assert http.post("/v1/completions", json=body).status_code == 400


@pytest.mark.parametrize("include", [False, True, None])
def test_a_stream_has_usage_if_requested(http: httpx.Client, include: bool | None) -> None:
    found = chunks(
        http, max_tokens=5, temperature=0, stream_options={} if include is None else {"include_usage": include}
    )
    if include:
        last = found.pop()
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
    usages = [chunk.get("usage") for chunk in found]
    assert usages == [None] * len(found)
    refused = http.post("/v1/completions", json={"prompt": "the", "stream_options": {"include_usage": True}})
    assert refused.status_code == 400
    nested = {"prompt": "the", "stream": True, "stream_options": {"usage": True}}
    error = http.post("/v1/completions", json=nested).json()["error"]
    assert error["param"] == "stream_options.usage"
    assert "'stream_options.usage'" in error["message"]


@pytest.mark.parametrize("echo", [False, True])
def test_prompt_and_answer_have_ids_of_their_own(http: httpx.Client, echo: bool) -> None:
    ids = http.post("/tokenize", json={"prompt": "the river"}).json()["tokens"]
    asked: dict[str, Any] = {"max_tokens": 6, "seed": 2, "logprobs": 1, "echo": echo, "return_token_ids": True}
    whole = choice(http, **asked)
    assert whole["prompt_token_ids"] == ids
    assert len(whole["logprobs"]["tokens"]) == len([*(ids if echo else []), *whole["token_ids"]])
    assert len(whole["token_ids"]) == 6
    found = [chunk["choices"][0] for chunk in chunks(http, **asked)]
    assert [part.get("prompt_token_ids") for part in found] == [ids] + [None] * (len(found) - 1)
    assert [token for part in found for token in part["token_ids"]] == whole["token_ids"]
    assert [name for part in found for name in part["logprobs"]["tokens"]] == whole["logprobs"]["tokens"]
    plain = choice(http, max_tokens=2)
    assert plain.get("token_ids") is plain.get("prompt_token_ids") is None


def test_offsets_begin_after_the_prompt_as_in_openais_api(http: httpx.Client) -> None:
    asked: dict[str, Any] = {"max_tokens": 6, "seed": 2, "logprobs": 0}
    offsets = choice(http, **asked)["logprobs"]["text_offset"]
    assert offsets[0] == len("the river")
    assert choice(http, **asked, echo=True)["logprobs"]["text_offset"][-6:] == offsets
    streamed = chunks(http, **asked)
    assert [o for c in streamed for o in c["choices"][0]["logprobs"]["text_offset"]] == offsets


def test_several_texts_differ_and_a_batch_keeps_its_order(http: httpx.Client) -> None:
    asked: dict[str, Any] = {"n": 3, "max_tokens": 50, "temperature": 1, "seed": 42}
    texts = [one["text"] for one in complete(http, **asked)["choices"]]
    assert len(set(texts)) == 3
    streamed, ends = ["", "", ""], 0
    for chunk in chunks(http, **asked):
        streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        ends += chunk["choices"][0]["finish_reason"] is not None
    assert (streamed, ends) == (texts, 3)
    batch: dict[str, Any] = {"prompt": ["a stone", "the river"], "max_tokens": 5, "temperature": 0}
    choices = complete(http, **batch)["choices"]
    assert [one["index"] for one in choices] == [0, 1]
    for one, prompt in zip(choices, batch["prompt"], strict=True):
        assert one["text"] == choice(http, **{**batch, "prompt": prompt})["text"]


def test_ids_outside_the_vocabulary_are_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"model": "base", "prompt": [999_999]})
    assert answer.status_code == 400
    assert "999999" in answer.json()["error"]["message"].replace(",", "")


def test_a_models_root_is_null(http: httpx.Client) -> None:
    card = http.get("/v1/models").json()["data"][0]
    assert (card["root"], card["parent"], card["max_model_len"]) == (None, None, 64)


@pytest.mark.parametrize("path", ["/health/", "/v1/models/", "/v1/models/base/", "/tokenizer_info/"])
def test_a_trailing_slash_is_not_a_redirect(http: httpx.Client, path: str) -> None:
    answer = http.get(path, follow_redirects=False)
    assert answer.status_code == 200
    assert answer.json().keys() == http.get(path.rstrip("/")).json().keys()


def test_names_of_tokens_are_the_tokenizers(http: httpx.Client, base_folder: Any) -> None:
    from transformers import AutoTokenizer

    peer = AutoTokenizer.from_pretrained(base_folder)
    text = "the river 日본 runs"
    found = http.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    assert found["tokens"] == peer.encode(text)
    assert found["token_strs"] == peer.convert_ids_to_tokens(found["tokens"])
    assert http.post("/tokenize", json={"prompt": text}).json()["token_strs"] is None
    info = http.get("/tokenizer_info").json()
    assert isinstance(info["tokenizer_class"], str)
    assert info["model_max_length"] >= found["max_model_len"]
