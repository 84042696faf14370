"""What a page of another site, or a body that is no request, gets from the server; the rest is in tests/serve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from headwater.serve import ServeConfig
from headwater.serve.api import create_app
from headwater.serve.keys import Keys


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app([], ServeConfig()), base_url="http://localhost") as found:
        yield found


def test_the_page_may_run_and_be_framed_by_nobody_else(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_another_sites_page_cannot_read_or_send(client: TestClient) -> None:
    other = {"origin": "http://evil.example"}
    asked = client.get("/v1/models", headers=other)
    assert not [name for name in asked.headers if name.startswith("access-control")]
    preflight = client.options("/v1/completions", headers={**other, "access-control-request-method": "POST"})
    assert preflight.status_code == 405
    # A form or script of another site can send no JSON by its content type, and none else is read.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
        head = {} if kind is None else {"content-type": kind}
        answer = client.post("/v1/completions", content=b'{"prompt": "a"}', headers=head)
        assert "not a JSON object with content type application/json" in answer.json()["error"]["message"]
    # A name of its own that leads to this machine (DNS rebinding) is another host.
    assert client.get("/v1/models", headers={"host": "rebound.example:8000"}).status_code == 403


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([b"localhost:8000"], 200),
        ([b"127.0.0.1"], 200),
        ([b"[::1]:8000"], 200),
        ([], 400),
        ([b"localhost", b"localhost"], 400),
        ([b"localhost", b"evil.example"], 400),
        ([b"[::1].evil.example"], 400),
        ([b"localhost/@evil.example"], 400),
        ([b""], 400),
        ([b"127.0.0.1.evil.example"], 403),
        ([b"evil.example"], 403),
        ([b"[2001:db8::1]"], 403),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/"])
def test_only_one_host_of_this_machine_is_answered(hosts: list[bytes], status: int, path: str) -> None:
    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"http_version": "1.1", "headers": [(b"host", host) for host in hosts], "root_path": ""}

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(create_app([], ServeConfig())(scope, receive, send))
    assert sent[0]["status"] == status
    # A redirect would name the host that was sent.
    assert b"location" not in dict(sent[0]["headers"])


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"prompt": ' + b"9" * 100_000 + b"}",
        b"\xff\xfe{}",
        b'{"prompt": 1e999}',
        b"[" * 16_385 + b'"' + b'\\"' * 500_000,
    ],
)
def test_a_body_that_is_a_trap_for_the_parser_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.content) < 10_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"input": "a", "\\ud800": 1}', "has a lone surrogate"),
        (b'{"input": ' + b"9" * 5_000 + b"}", "(4300 digits)"),
        (b'{"input": "\xff"}', "can't decode byte 0xff"),
    ],
)
def test_an_unreadable_body_is_refused_by_its_cause(client: TestClient, body: bytes, said: str) -> None:
    answer = client.post("/classify", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_many_fields_are_refused_as_one(client: TestClient) -> None:
    """An error for each of 90,000 unknown fields took a second of the event loop."""
    body = {f"field{number}": 0 for number in range(1_000)}
    for path in ("/v1/completions", "/tokenize", "/inspect"):
        error = client.post(path, json=body).json()["error"]
        assert error["message"] == "The body has 1,000 fields; the most is 256."


def test_keys_are_kept_as_hashes(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n", encoding="utf-8")
    keys = Keys(tmp_path / "keys")
    assert keys.name_of({b"x-api-key": "secret"}) == "unnamed"
    assert "secret" not in repr(vars(keys))
