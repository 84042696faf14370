"""docs/serving.md: its clients run, and its tables of fields say what the server does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai.types import EmbeddingCreateParams, Model
from openai.types.completion_create_params import CompletionCreateParamsBase
from pydantic import ValidationError

from headwater.serve.schema import CompletionRequest, EmbeddingRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["client.py", "curl.sh"])
def test_examples_run(server: Any, name: str) -> None:
    if name.endswith(".sh") and shutil.which("curl") is None:
        pytest.skip("needs curl")
    program = [sys.executable] if name.endswith(".py") else ["sh", "-e"]
    environment = {**os.environ, "HEADWATER_URL": server.url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    ran = subprocess.run(
        [*program, str(ROOT / "examples" / "serving" / name)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert "error" not in ran.stdout


def table(heading: str) -> dict[str, str]:
    """The rows of the tables of docs/serving.md under a heading: field -> supported, differs or refused."""
    rows: dict[str, str] = {}
    for part in PAGE.split(f"| `{heading}` | | |\n|---|---|---|\n")[1:]:
        for line in part.partition("\n\n")[0].splitlines():
            names, status, explanation = [cell.strip() for cell in line.replace("\\|", "!").strip("|").split("|")]
            assert status in {"supported", "differs", "refused"}
            assert explanation or status == "supported"
            rows |= dict.fromkeys(re.findall(r"`([a-z_]+)`", names), status)
    return rows


COMPLETION: dict[str, Any] = {
    "model": "base",
    "prompt": ["the", "a stone"],
    "best_of": 2,
    "echo": True,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "logprobs": 20,
    "max_tokens": None,
    "n": 2,
    "presence_penalty": 0.5,
    "seed": -5,
    "stop": ["z"] * 16,
    "stream": True,
    "stream_options": {"include_usage": True},
    "suffix": "end",
    "temperature": 3.5,
    "top_p": 0.5,
    "user": "me",
    "top_k": -1,
    "min_p": 0.1,
    "min_tokens": 2,
    "repetition_penalty": 1.1,
    "stop_token_ids": [5],
    "ignore_eos": True,
    "return_token_ids": True,
    "add_special_tokens": True,
    "session_id": "mine",
    "spaces_between_special_tokens": False,
    "truncation_side": "left",
    # Refused: for these fields 1 would ask for nothing.
    "stream_interval": 2,
    "length_penalty": 0.5,
    "skip_special_tokens": False,
    "return_mm_kwargs": False,
}
EMBEDDING: dict[str, Any] = {
    "input": [[1, 2], [3]],
    "model": "base",
    "dimensions": 7,
    "encoding_format": "base64",
    "user": "me",
    "normalize": False,
}


@pytest.mark.parametrize(
    ("path", "kind", "reference", "samples", "least"),
    [
        ("/v1/completions", CompletionRequest, CompletionCreateParamsBase, COMPLETION, {"prompt": "the"}),
        ("/v1/embeddings", EmbeddingRequest, EmbeddingCreateParams, EMBEDDING, {"input": "the"}),
    ],
)
def test_every_documented_field_has_its_effect(
    http: Any, path: str, kind: Any, reference: Any, samples: dict[str, Any], least: dict[str, Any]
) -> None:
    rows = table(path)
    assert set(reference.__annotations__) | set(kind.model_fields) <= set(rows)
    assert {field for field, status in rows.items() if status != "refused"} <= set(kind.model_fields)
    for field, status in rows.items():
        body = {**least, field: samples.get(field, 1)}
        if field == "stream_options":
            body["stream"] = True
        answer = http.post(path, json=body)
        if status == "refused":
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
        else:
            assert field in samples
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("field", "most", "beyond"),
    [
        ("logit_bias", {str(token): 0.0 for token in range(1_024)}, {str(token): 0.0 for token in range(1_025)}),
        ("logprobs", 20, 21),
        ("stop", ["a"] * 16, ["a"] * 17),
        ("stop_token_ids", [1] * 1_024, [1] * 1_025),
        ("temperature", 100, 100.5),
    ],
)
def test_the_limits_in_the_table_are_those_of_the_fields(field: str, most: Any, beyond: Any) -> None:
    limit = f"{most if isinstance(most, int) else len(most):,}"
    assert re.search(rf"\| `{field}` \|.*\b(?:up )?to {limit}\b", PAGE)
    CompletionRequest.model_validate({field: most})
    with pytest.raises(ValidationError):
        CompletionRequest.model_validate({field: beyond})


def test_every_field_of_a_model_is_in_the_table(http: Any) -> None:
    rows = table("/v1/models")
    card = http.get("/v1/models").json()["data"][0]
    sent = {field for field, status in rows.items() if status != "refused"}
    assert set(card) == sent
    assert set(Model.model_fields) <= set(rows)
