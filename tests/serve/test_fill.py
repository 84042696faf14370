"""/v1/fill and the other calls with a masked model: blanks are filled, and the rest is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from model_server import opened
from starlette.testclient import TestClient

import headwater as hw
from headwater.inference import fill, framed
from headwater.inference.masked import MOST_MASKS
from headwater.serve import ServeConfig
from headwater.serve.api import create_app
from headwater.serve.served import Served


@pytest.fixture(scope="module")
def served(masked_folder: Path, base_folder: Path) -> list[Served]:
    return opened(f"blanks={masked_folder}", f"base={base_folder}", precision="auto", slots=2)


@pytest.fixture(scope="module")
def client(served: list[Served]) -> Iterator[TestClient]:
    with TestClient(create_app(served, ServeConfig()), base_url="http://localhost") as client:
        yield client


def test_blanks_are_filled_as_offline(client: TestClient, masked_folder: Path) -> None:
    text = "The [MASK] is [MASK]."
    lm = hw.load(masked_folder)
    expected = fill(lm.model, lm.tokenizer, framed(lm.config, lm.tokenizer, text), 3)
    answer = client.post("/v1/fill", json={"model": "blanks", "input": text, "top": 3})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["object"], found["model"]) == ("list", "blanks")
    assert [blank["position"] for blank in found["data"]] == [2, 4]  # [CLS] is at 0
    for blank, candidates in zip(found["data"], expected, strict=True):
        assert [(one["token"], one["text"]) for one in blank["tokens"]] == [
            (one.token, one.text) for one in candidates
        ]
        # float32 whatever the machine's precision is
        assert [one["probability"] for one in blank["tokens"]] == [one.probability for one in candidates]


def test_a_masked_model_has_no_engine(client: TestClient, served: list[Served]) -> None:
    cards = {card["id"]: card["masked"] for card in client.get("/v1/models").json()["data"]}
    assert cards == {"blanks": True, "base": False}
    assert served[0].lm._network is None
    assert client.get("/health").json()["status"] == "ok"
    assert 'headwater_engine_alive{model="base"} 1' in client.get("/metrics").text
    assert client.post("/tokenize", json={"model": "blanks", "prompt": "the sky"}).json()["count"] == 2
    assert client.get("/tokenizer_info?model=blanks").json()["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_the_embedding_of_a_text_is_that_of_python(client: TestClient, masked_folder: Path) -> None:
    body = {"model": "blanks", "input": ["the sky is blue.", "a river"], "normalize": False}
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    vectors = [entry["embedding"] for entry in answer.json()["data"]]
    np.testing.assert_allclose(vectors, hw.load(masked_folder).embed(["the sky is blue.", "a river"]), atol=1e-6)
    ids = hw.load(masked_folder).tokenizer.encode("a river")
    again = client.post("/v1/embeddings", json={**body, "input": [ids]}).json()
    np.testing.assert_allclose(again["data"][0]["embedding"], vectors[1], atol=1e-6)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "the"}),
        ("/v1/completions", {"prompt": "the", "stream": True}),
        ("/v1/completions", {"prompt": "the", "echo": True, "max_tokens": 0}),
        ("/inspect", {"prompt": "the sky"}),
    ],
)
def test_what_reads_from_left_to_right_is_refused(client: TestClient, path: str, body: dict[str, object]) -> None:
    answer = client.post(path, json={"model": "blanks", **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == "model"
    assert "does not read a text from left to right" in error["message"]


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({"model": "base", "input": "[MASK]"}, "model", "does not fill blanks"),
        ({"input": "the sky"}, "input", "no [MASK]"),
        ({"input": "[MASK]" * (MOST_MASKS + 1)}, "input", "more than the model's context"),
        ({"input": "[MASK] " + "the " * 100_000}, "input", "more than the model's context"),
        ({"input": "[MASK]", "top": 0}, "top", "greater than or equal to 1"),
        ({"input": "[MASK]", "top": 200}, "top", "expected 1 to"),
        ({"input": ["[MASK]"]}, "input", "string"),
        ({}, "input", "required"),
    ],
)
def test_a_wrong_request_is_named(client: TestClient, body: dict[str, object], param: str, reason: str) -> None:
    answer = client.post("/v1/fill", json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert reason in error["message"]
