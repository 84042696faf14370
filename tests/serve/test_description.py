"""Nothing that the OpenAPI description allows, or forbids, makes the server fail."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    status_code_conformance,
)

CHECKS = [
    checks.not_a_server_error,
    content_type_conformance,
    status_code_conformance,
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/classify"),
        ("POST", "/v1/fill"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("GET", "/tokenizer_info"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{name}"),
        ("GET", "/health"),
        ("GET", "/metrics"),
    ],
)
def test_no_request_makes_the_server_fail(server: Any, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operation = schema[path][method]

    @hypothesis.settings(
        max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(
        case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    def check(case: Any) -> None:
        response = case.call(timeout=600)
        case.validate_response(response, checks=CHECKS)

    check()


def test_the_description_names_every_answer(http: Any) -> None:
    described = http.get("/openapi.json").json()
    assert "/v1/completions" in described["paths"]
    for path in described["paths"].values():
        for operation in path.values():
            assert {"200", "default"} <= set(operation["responses"])
            assert "422" not in operation["responses"]
