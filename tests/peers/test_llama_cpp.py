"""What the tests of llama.cpp's server ask on the routes that OpenAI has too, in our own words.

Refused on purpose, or different:

- llama.cpp's own routes (`/completion`, `/slots`, `/infill`, `/props`, …) and their fields (`n_predict`, …);
- prompts that mix texts and ids in one list: OpenAI's schema has no such prompt;
- `/v1/models` without a key: names of models are not public where there are keys;
- a text that is too long is not cut;
- pooling other than the mean, and `system_fingerprint`, which names llama.cpp's build.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

KEY = "sk-this-is-a-key"


@pytest.fixture(scope="module")
def keyed(base_folder: Path, tmp_path_factory: pytest.TempPathFactory, start_server: Any) -> Iterator[Any]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    running = start_server(
        *("--model", f"base={base_folder}", "--api-key-file", str(keys)),
        *("--allow-origin", "https://page.example"),
    )
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"X-Api-Key": "another"}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"X-Api-Key": KEY}, 200),
    ],
)
def test_a_key_is_accepted_in_either_header(keyed: Any, headers: dict[str, str], status: int) -> None:
    with keyed.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "the", "max_tokens": 1}, headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert answer.json()["error"]["type"] == "authentication_error"
        for open_path in ("/health", "/"):
            assert client.get(open_path, headers=headers).status_code == 200


@pytest.mark.parametrize(("origin", "allowed"), [("https://page.example", True), ("https://other.example", False)])
def test_a_page_of_an_allowed_origin_may_send_requests(keyed: Any, origin: str, allowed: bool) -> None:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    with keyed.client() as client:
        preflight = client.options(
            "/v1/completions", headers={**asked, "Access-Control-Request-Headers": "authorization"}
        )
        assert (preflight.status_code == 200) == allowed
        assert (preflight.headers.get("access-control-allow-origin") == origin) == allowed
        if allowed:
            assert "authorization" in preflight.headers["access-control-allow-headers"]
        for key, status in ((KEY, 200), ("wrong", 401)):  # an error is readable too
            answer = client.post(
                "/v1/completions",
                json={"prompt": "the", "max_tokens": 1},
                headers={"Origin": origin, "Authorization": f"Bearer {key}"},
            )
            assert answer.status_code == status
            assert (answer.headers.get("access-control-allow-origin") == origin) == allowed


def test_a_stream_joins_to_the_whole_text(http: httpx.Client) -> None:
    import json

    body = {"model": "base", "prompt": "I believe the meaning of life is", "max_tokens": 8, "seed": 42}
    whole = http.post("/v1/completions", json=body).json()["choices"][0]
    lines = http.post("/v1/completions", json={**body, "stream": True}).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line and line != "data: [DONE]"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert whole["finish_reason"] == "length"
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_the_seed_decides_the_text(http: httpx.Client) -> None:
    def text(seed: int) -> str:
        body = {"model": "base", "prompt": "the river", "max_tokens": 12, "seed": seed, "temperature": 1}
        return str(http.post("/v1/completions", json=body).json()["choices"][0]["text"])

    assert len({text(42) for _ in range(3)}) == 1
    assert len({text(seed) for seed in range(4)}) == 4


def test_ids_and_text_of_a_prompt_give_the_same_text(http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": "the river"}).json()["tokens"]
    body = {"model": "base", "max_tokens": 6, "temperature": 0}
    choices = http.post("/v1/completions", json={**body, "prompt": [ids, ids]}).json()["choices"]
    text = http.post("/v1/completions", json={**body, "prompt": "the river"}).json()["choices"][0]["text"]
    assert [choice["text"] for choice in choices] == [text, text]
    mixed = http.post("/v1/completions", json={**body, "prompt": [1, 2, "the"]})
    assert mixed.status_code == 400


def test_a_prompt_that_is_too_long_is_refused(http: httpx.Client) -> None:
    long = "I believe the meaning of life is " * 32
    for path, body in (("/v1/completions", {"prompt": long}), ("/v1/embeddings", {"input": long})):
        answer = http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_embeddings_have_length_1_and_both_encodings(http: httpx.Client) -> None:
    texts = ["This is a test", "This is another test", "This is a test"]
    answer = http.post("/v1/embeddings", json={"input": texts}).json()
    vectors = [one["embedding"] for one in answer["data"]]
    assert [sum(value**2 for value in vector) for vector in vectors] == pytest.approx([1.0] * 3, abs=1e-3)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    counts = [http.post("/tokenize", json={"prompt": text}).json()["count"] for text in texts]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(counts)
    encoded = http.post("/v1/embeddings", json={"input": texts[0], "encoding_format": "base64"}).json()
    data = base64.b64decode(encoded["data"][0]["embedding"])
    assert struct.unpack(f"<{len(data) // 4}f", data) == pytest.approx(vectors[0], abs=1e-5)
    assert http.post("/v1/embeddings", json={"input": []}).status_code == 400
    assert http.post("/v1/embeddings", json={"input": {"content": "text"}}).status_code == 400


def test_routes_of_its_own_are_not_here(http: httpx.Client) -> None:
    for path in ("/completion", "/infill"):
        assert http.post(path, json={"prompt": "the", "n_predict": 4}).status_code == 404
    refused = http.post("/v1/completions", json={"prompt": "the", "mirostat": 2}).json()["error"]
    assert (refused["param"], refused["code"]) == ("mirostat", "unknown_parameter")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_the_number_of_tokens_has_three_names(http: httpx.Client, name: str) -> None:
    asked = {"model": "base", "prompt": "the river", "ignore_eos": True}
    for value, count in ((4, 4), (-1, None)):
        used = http.post("/v1/completions", json={**asked, name: value}).json()["usage"]
        # The context is 64, and the last token need not be read.
        assert used["completion_tokens"] == (65 - used["prompt_tokens"] if count is None else count)
    both = http.post("/v1/completions", json={**asked, "max_tokens": 1, "n_predict": 2})
    assert both.status_code == 400
