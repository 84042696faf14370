"""What one request may cost, and what one client may take from the others. No socket: work is counted."""

from __future__ import annotations

import asyncio
import gc
import hmac
import json
import os
import shutil
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_server import opened
from pydantic import ValidationError
from starlette.testclient import TestClient

import headwater as hw
from headwater.cli.main import main
from headwater.errors import UsageError
from headwater.finetuning import explain
from headwater.inference import Request
from headwater.inference.sampling import Sampling, choose
from headwater.model import build_model, preset, save_model
from headwater.serve import ServeConfig
from headwater.serve.answers import ComputedResponse, EventStream, encode
from headwater.serve.api import create_app
from headwater.serve.completions import CompletionChoice
from headwater.serve.guard import Guard
from headwater.serve.keys import Keys
from headwater.serve.metrics import Metrics
from headwater.serve.opening import automatic_slots, open_models
from headwater.serve.problems import Problem
from headwater.serve.schema import (
    ClassifyRequest,
    CompletionRequest,
    EmbeddingRequest,
)
from headwater.serve.served import OpenRequest, Served, Server
from headwater.serve.tasks import embed


@contextmanager
def serving(folder: Path, config: ServeConfig | None = None) -> Iterator[tuple[TestClient, Served]]:
    served = opened(f"base={folder}", slots=2)[0]
    with TestClient(create_app([served], config or ServeConfig()), base_url="http://localhost") as client:
        yield client, served


def test_each_request_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headwater.serve.requests")
    with TestClient(create_app([], ServeConfig()), base_url="http://localhost") as client:
        client.post("/v1/completions?key=secret", json={"model": "none", "prompt": "a secret"})
        client.get("/secret")
    first, second = (record.getMessage() for record in caplog.records)
    assert " POST /v1/completions - 404 " in first
    assert " GET other - 404 " in second
    assert "secret" not in first + second


def test_a_request_without_a_key_is_logged_by_route(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "keys").write_text("good\n", encoding="utf-8")
    caplog.set_level("INFO", "headwater.serve.requests")
    app = create_app([], ServeConfig(), Keys(tmp_path / "keys"))
    with TestClient(app, base_url="http://localhost") as client:
        client.get("/v1/models")
        client.get("/secret")
    first, second = (record.getMessage() for record in caplog.records)
    assert " GET /v1/models - 401 " in first
    assert " GET other - 401 " in second


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionRequest, {"prompt": [{}] * 50_000}),
        (CompletionRequest, {"prompt": [["a"]] * 50_000}),
        (CompletionRequest, {"prompt": [-1] * 50_000}),
        (CompletionRequest, {"stop": [1] * 50_000}),
        (CompletionRequest, {"stop_token_ids": ["a"] * 50_000}),
        (CompletionRequest, {"logit_bias": {str(token): "a" for token in range(50_000)}}),
        (EmbeddingRequest, {"input": [{}] * 50_000}),
        (ClassifyRequest, {"input": [[1]] * 50_000}),
    ],
)
def test_a_wrong_list_is_given_up_at_its_first_error(kind: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        kind.model_validate(body)
    assert raised.value.error_count() <= 8


def test_a_bias_of_many_tokens_is_added_in_one_operation() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=5_000).astype(np.float32)
    bias = {int(token): float(value) for token, value in enumerate(generator.normal(size=4_000))}
    expected = logits.copy()
    for token, value in bias.items():
        expected[token] += np.float32(value)
    sampling = Sampling(temperature=0, bias=bias)
    assert choose(logits, sampling, [], 0.0) == int(expected.argmax())
    tokens, added = sampling.bias_arrays
    assert sampling.bias_arrays[0] is tokens  # made once, not at every token
    assert len(added) == 4_000


class _Body:
    """A client that sends its headers, and of its body only `sent`."""

    def __init__(self, sent: bytes = b"") -> None:
        self.asked, self._sent = 0, sent

    async def __call__(self) -> Any:
        self.asked += 1
        if not self._sent:
            await asyncio.Event().wait()
        sent, self._sent = self._sent, b""
        return {"type": "http.request", "body": sent}


def _scope(path: str, key: str = "", method: str = "POST", length: int = 0) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    headers.append((b"content-length", str(length).encode()))
    return {"type": "http", "method": method, "path": path, "headers": headers}


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _ask(guard: Guard, scope: Any, receive: Any) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return int(sent[0]["status"])


def test_a_body_above_its_limit_is_refused_unread() -> None:
    async def scenario() -> None:
        guard = Guard(_answer, config=ServeConfig(body_bytes=100), keys=None, metrics=Metrics({}))
        unread = _Body()
        async with asyncio.timeout(30):
            assert await _ask(guard, _scope("/classify", length=101), unread) == 413
            assert unread.asked == 0
            for size, status in ((100, 200), (101, 413)):
                assert await _ask(guard, _scope("/classify"), _Body(b"x" * size)) == status
        assert guard.metrics.open == 0

    asyncio.run(scenario())


def test_all_keys_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    (tmp_path / "keys").write_text("first\nsecond\nthird\n", encoding="utf-8")
    keys = Keys(tmp_path / "keys")
    for key in ("first", "third", "none"):
        compared.clear()
        assert (keys.name_of({b"authorization": f"Bearer {key}"}) is not None) == (key != "none")
        assert compared == [*keys._names]


def test_clients_without_a_key_occupy_no_slot(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("good\n", encoding="utf-8")

    async def scenario() -> None:
        metrics = Metrics({})
        guard = Guard(_answer, config=ServeConfig(requests=2), keys=Keys(tmp_path / "keys"), metrics=metrics)
        waiting = _Body()
        async with asyncio.timeout(30):
            # Open paths are answered at once, whatever body was promised; keys are checked before bodies.
            for path in ("/health", "/", "/page/app.js", "/openapi.json"):
                assert await _ask(guard, _scope(path), waiting) == 200
            assert await _ask(guard, _scope("/classify", "bad"), waiting) == 401
        assert waiting.asked == 0
        slow = [asyncio.create_task(_ask(guard, _scope("/classify", "good"), _Body())) for _ in range(2)]
        bad = [asyncio.create_task(_ask(guard, _scope("/classify", "bad"), _Body())) for _ in range(20)]
        assert set(await asyncio.gather(*bad)) == {401}
        assert metrics.open == 2
        assert await _ask(guard, _scope("/classify", "good"), _Body()) == 429
        assert await _ask(guard, _scope("/health", method="GET"), _Body()) == 200
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert metrics.open == 0

    asyncio.run(scenario())


def test_texts_are_cut_into_jobs_that_others_come_between(base_folder: Path) -> None:
    lm = hw.load(base_folder)
    texts = ["the river" * (1 + number % 4) + " runs to the sea." for number in range(200)]
    expected = lm.embed(texts, normalize=True)

    async def scenario() -> None:
        server = Server(
            opened(f"base={base_folder}", slots=1),
            ServeConfig(queue=8),
        )
        server.start()
        served = server.find("base")
        try:
            sizes: list[int] = []
            real = served.lm.embed_ids

            def counted(ids: Any, **options: Any) -> Any:
                sizes.append(sum(map(len, ids)))
                if len(sizes) == 2:
                    waits.wait()
                return real(ids, **options)

            waits = threading.Event()  # the second job ends only after the short request has queued its own
            served.lm.embed_ids = counted  # type: ignore[method-assign]
            long = asyncio.create_task(embed(OpenRequest(server, "base", {}), EmbeddingRequest(input=texts)))
            while len(sizes) < 2 and not long.done():
                await asyncio.sleep(0)
            short = asyncio.create_task(embed(OpenRequest(server, "base", {}), EmbeddingRequest(input="a")))
            while served.jobs < 2 and not short.done():
                await asyncio.sleep(0)
            waits.set()
            await short
            assert sizes[2] == 1  # the token of the short request: its job is the next one
            answer = await long
            assert max(sizes) <= 1_024
            vectors = np.array([row["embedding"] for row in answer["data"]])
            assert np.abs(vectors - expected).max() < 1e-5
            # Who is cancelled leaves at most the job under way.
            jobs_before = len(sizes)
            left = asyncio.create_task(embed(OpenRequest(server, "base", {}), EmbeddingRequest(input=texts)))
            while len(sizes) == jobs_before and not left.done():
                await asyncio.sleep(0)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            await served.compute(lambda: None)
            assert len(sizes) <= jobs_before + 2
        finally:
            server.stop()

    asyncio.run(scenario())


def test_jobs_of_the_second_thread_wait_in_a_queue_of_their_own(base_folder: Path) -> None:
    async def scenario() -> None:
        served = opened(f"base={base_folder}", slots=1)[0]
        served.start(2)
        go = threading.Event()
        try:
            waiting = [asyncio.ensure_future(served.compute(lambda: go.wait(30))) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Problem) as full:
                await served.compute(lambda: None)
            assert (full.value.status, full.value.code) == (429, "queue_full")
            go.set()
            assert await asyncio.gather(*waiting) == [True, True]
            assert await served.compute(lambda: "done") == "done"
        finally:
            go.set()
            served.stop()

    asyncio.run(scenario())


def test_the_prompt_is_read_under_the_time_limit(base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(base_folder, ServeConfig(seconds=0.05)) as (client, _):

        def slow(*_: Any) -> Any:
            import time

            time.sleep(0.5)
            raise AssertionError("nobody waits for this")

        monkeypatch.setattr("headwater.serve.completions.plan_completion", slow)
        for stream in (False, True):
            answer = client.post("/v1/completions", json={"prompt": "the", "stream": stream})
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "the river", "max_tokens": 0, "echo": True, "logprobs": 20}, "logprobs"),
        ("/v1/completions", {"prompt": "the river", "max_tokens": 0, "echo": True, "n": 30}, "max_tokens"),
        ("/v1/completions", {"prompt": "the river", "max_tokens": 41}, "max_tokens"),
        ("/v1/embeddings", {"input": ["the river"] * 30}, "input"),
        ("/inspect", {"prompt": "the river " * 20}, "prompt"),
    ],
)
def test_tokens_of_a_request_and_its_answer_are_bounded(
    base_folder: Path, path: str, body: dict[str, Any], param: str
) -> None:
    with serving(base_folder, ServeConfig(tokens=40)) as (client, _):
        error = client.post(path, json=body).json()["error"]
        assert error["param"] == param
        assert "tokens in one request; the most is 40" in error["message"]
    with serving(base_folder) as (client, _):
        assert client.post(path, json=body).status_code == 200


@pytest.mark.parametrize(
    ("path", "field", "more"), [("/v1/completions", "prompt", {"max_tokens": 0}), ("/v1/embeddings", "input", {})]
)
def test_number_of_texts_in_a_request_is_bounded(
    base_folder: Path, path: str, field: str, more: dict[str, int]
) -> None:
    with serving(base_folder) as (client, _):
        answer = client.post(path, json={field: ["a"] * 2_049, **more})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_large_answer_does_not_block_the_event_loop(base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    opening = CompletionChoice.open

    def watched(answer: CompletionChoice) -> None:
        threads.add(threading.current_thread().name)
        opening(answer)

    monkeypatch.setattr(CompletionChoice, "open", watched)
    texts = [" ".join(["the river runs"] * (1 + number % 4)) for number in range(200)]
    body = {"max_tokens": 0, "echo": True, "logprobs": 2}
    with serving(base_folder) as (client, served):
        sizes: list[int] = []
        scored = served.lm.scorer.alternatives

        def counted(given: Any, count: int) -> Any:
            sizes.append(sum(map(len, given)))
            return scored(given, count)

        served.lm.scorer.alternatives = counted  # type: ignore[method-assign]
        alone = [client.post("/v1/completions", json={**body, "prompt": text}).json() for text in texts[:4]]
        sizes.clear()
        threads.clear()
        whole = client.post("/v1/completions", json={**body, "prompt": texts}).json()
    assert max(sizes) <= 1_024
    assert len(sizes) <= 1 + sum(sizes) // 900
    assert all(name.startswith("asyncio_") for name in threads), "a thread of the loop's pool"
    for number, choice in enumerate(whole["choices"]):
        expected = alone[number % 4]["choices"][0]
        assert choice["text"] == expected["text"]
        found, wanted = choice["logprobs"], expected["logprobs"]
        assert found["tokens"] == wanted["tokens"]
        assert found["token_logprobs"][1:] == pytest.approx(wanted["token_logprobs"][1:], abs=1e-4)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX priorities")
def test_threads_that_share_the_interpreter_have_one_priority(base_folder: Path) -> None:
    """One of low priority that waits for a core while it holds the interpreter's lock makes all others wait."""

    async def scenario() -> None:
        server = Server(
            opened(f"base={base_folder}", slots=1),
            ServeConfig(),
        )
        server.start()
        try:
            for size in (1, 100_000):
                request = OpenRequest(server, "base", {"body_bytes": size})
                for run in (request.model.compute, request.read):
                    priority = await run(lambda: os.getpriority(os.PRIO_PROCESS, 0))
                    assert priority == os.getpriority(os.PRIO_PROCESS, 0)
        finally:
            server.stop()

    asyncio.run(scenario())


def test_the_words_of_gpt1_are_loaded_before_the_first_request(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    tokenizer = hw.Tokenizer.train(["the river runs to the sea. " * 9], kind="gpt1", vocab_size=300)
    config = preset("gpt1-nano", vocabulary=tokenizer.vocabulary_size)
    save_model(build_model(config, seed=1), tmp_path, tokenizer=tokenizer)
    (served,) = opened(str(tmp_path), slots=1)
    assert served.lm.tokenizer._codec._splitter is not None


def test_a_model_is_served_from_a_path_with_an_equals_sign(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(base_folder, tmp_path / "lr=0.1/model")
    names: list[str] = []

    def record(config: ServeConfig, **_: Any) -> None:
        names.extend(served.name for served in open_models(config))

    monkeypatch.setattr("headwater.serve.serve", record)
    assert main(["serve", "--model", "lr=0.1/model", "--model", "river=lr=0.1/model"]) == 0
    assert names == ["lr=0.1", "river"]


def test_a_model_has_the_name_of_the_link_that_is_served(base_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(base_folder)
    (served,) = opened(str(tmp_path / "current"), slots=1)
    assert served.name == "current"


def test_more_continuations_than_the_memory_holds_are_refused(base_folder: Path) -> None:
    with pytest.raises(UsageError, match="need more memory than is free; expected at most"):
        opened(str(base_folder), slots=10**9)


def test_the_case_of_a_host_name_does_not_matter(base_folder: Path) -> None:
    with serving(base_folder) as (client, _):
        assert client.get("/v1/models", headers={"Host": "LocalHost:8000"}).status_code == 200
        assert client.get("/v1/models", headers={"Host": "localhost.example:8000"}).status_code == 403


def test_an_answer_is_sent_in_parts_while_its_client_reads(base_folder: Path) -> None:
    text = "x" * 300_000

    async def scenario() -> None:
        server = Server(
            opened(f"base={base_folder}", slots=1),
            ServeConfig(),
        )
        server.start()
        sent: list[bytes] = []
        blocked, reads = asyncio.Event(), asyncio.Event()

        async def answer(config: ServeConfig) -> None:
            async def compute(request: OpenRequest) -> dict[str, Any]:
                server.config = config  # what remains is to send the answer
                return {"prompt": text}

            work = ComputedResponse(server, "base", compute, "tokens")
            stays: Any = asyncio.Event().wait
            await work({"type": "http"}, stays, send)

        async def send(message: Any) -> None:
            if sent:
                blocked.set()
                await reads.wait()
            if message["type"] == "http.response.body":
                sent.append(message["body"])

        try:
            async with asyncio.timeout(30):
                sending = asyncio.create_task(answer(ServeConfig()))
                await blocked.wait()
                assert len(sent[0]) <= 64 * 1024
                reads.set()
                await sending
                assert json.loads(b"".join(sent)) == {"prompt": text}
                reads.clear()
                with pytest.raises(TimeoutError):
                    await answer(ServeConfig(seconds=0.01))
        finally:
            server.stop()

    asyncio.run(scenario())


def test_a_request_is_checked_once(base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    length = Request.length

    def counted(request: Request, *sizes: int) -> int:
        checked.append(len(request.prompt))
        return length(request, *sizes)

    monkeypatch.setattr(Request, "length", counted)
    with serving(base_folder) as (client, _):
        client.post("/v1/completions", json={"prompt": ["the", "the river"], "n": 3, "max_tokens": 2})
    assert len(checked) == 2


def test_json_is_ascii_and_has_finite_numbers_alone() -> None:
    content = {"data": [{"a": [0.1]}, None], "text": "\ud800é", "separator": "\u2028", "word": "NaN"}
    written = encode(content)
    assert written.isascii()  # also a line separator within an event of a stream
    assert json.loads(written) == content
    for number in (float("nan"), float("inf")):
        with pytest.raises(Problem, match="not finite"):
            encode({"data": [number]})


def test_health_turns_red_when_the_engines_thread_ends(
    base_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(base_folder) as (client, served):
        assert client.get("/health").json() == {"status": "ok", "models": ["base"], "failed": [], "stale": []}
        assert client.head("/health").status_code == client.head("/").status_code == 200

        def end() -> bool:
            raise SystemExit("the thread ends here")

        assert served.worker is not None
        served.worker._engine.step = end  # type: ignore[method-assign]
        answer = client.post("/v1/completions", json={"prompt": "the"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_stopped")
        served.worker._thread.join()
        assert client.get("/health").status_code == 503
        assert client.get("/health").json()["failed"] == ["base"]
        assert client.post("/v1/completions", json={"prompt": "the"}).status_code == 503
        assert served.worker.held == 0  # else later requests were told that the queue is full
        assert 'headwater_engine_alive{model="base"} 0' in client.get("/metrics").text
    assert "the engine's thread has ended" in caplog.text


def test_the_number_of_slots_follows_model_and_memory() -> None:
    small, large = preset("gpt2-pico"), preset("gpt2-xl")
    gigabyte = 1024**3
    assert automatic_slots(small, 8 * gigabyte) == 32
    assert automatic_slots(large, 24 * gigabyte) < automatic_slots(large, 96 * gigabyte) <= 32
    slot = 2 * 4 * large.layers * large.width * large.context
    assert automatic_slots(large, 24 * gigabyte) * slot <= 3 * gigabyte
    assert automatic_slots(large, 0) == 1


def test_an_lstm_is_served_as_the_others_are(tmp_path: Path, base_folder: Path) -> None:
    tokenizer = hw.Tokenizer.load(base_folder)
    config = preset("lstm-nano", vocabulary=tokenizer.vocabulary_size, width=16, units=16, context=32)
    save_model(build_model(config, seed=1), tmp_path, tokenizer=tokenizer)
    lm = hw.load(tmp_path)
    with serving(tmp_path) as (client, _):
        options: dict[str, Any] = {"max_tokens": 6, "seed": 3, "temperature": 0.9}
        answer = client.post(
            "/v1/completions", json={"prompt": "the river", **options, "echo": True, "logprobs": 2}
        )
        choice = answer.json()["choices"][0]
        assert choice["text"] == "the river" + lm.generate("the river", top_k=0, **options)
        assert len(client.post("/v1/embeddings", json={"input": "the"}).json()["data"][0]["embedding"]) == 16
        refused = client.post("/inspect", json={"prompt": "the"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")


Maker = Callable[..., Any]


def test_short_texts_do_not_wait_for_long_ones(base_folder: Path) -> None:
    async def run() -> None:
        server = Server(
            opened(f"base={base_folder}", slots=1),
            ServeConfig(),
        )
        server.start()
        begun, go = threading.Event(), threading.Event()

        def encode_long() -> None:
            begun.set()
            assert go.wait(30)

        try:
            long, short = (OpenRequest(server, "base", {"body_bytes": size}) for size in (50_000, 100))
            waiting = [asyncio.ensure_future(long.read(encode_long)) for _ in range(16)]
            assert await asyncio.to_thread(begun.wait, 30)
            assert await short.read(lambda: "encoded") == "encoded"
            assert not any(future.done() for future in waiting)
            go.set()
            await asyncio.gather(*waiting)
        finally:
            go.set()
            server.stop()

    asyncio.run(run())


def test_a_classifier_takes_a_generators_memory_only_to_generate(task_folders: dict[str, Path]) -> None:
    models = opened(f"classes={task_folders['classify']}", slots=2)
    with TestClient(create_app(models, ServeConfig()), base_url="http://localhost") as client:
        assert client.post("/classify", json={"input": "the", "explain": True}).status_code == 200
        assert (models[0].lm._network, models[0].worker) == (None, None)
        assert client.get("/health").json()["status"] == "ok"
        with ThreadPoolExecutor(4) as pool:
            body = {"prompt": "the", "max_tokens": 2}
            answers = list(pool.map(lambda _: client.post("/v1/completions", json=body).status_code, range(4)))
        assert answers == [200] * 4
        assert 'headwater_engine_alive{model="classes"} 1.0' in client.get("/metrics").text


def test_an_explanation_lets_other_jobs_run_in_between(task_folders: dict[str, Path]) -> None:
    """All texts without a word were one job, after which others had to wait."""
    sizes: list[int] = []
    models = opened(f"classes={task_folders['classify']}", slots=1)
    head = models[0].fine_tuned
    assert head is not None
    probabilities = head.probabilities
    object.__setattr__(head, "probabilities", lambda e: sizes.append(int(e.lengths.sum())) or probabilities(e))
    with TestClient(create_app(models, ServeConfig()), base_url="http://localhost") as client:
        text = "the river runs to the sea " * 40
        (row,) = client.post("/classify", json={"input": text, "explain": True}).json()["data"]
    (piece, *_) = row["words"]
    assert "".join(part["text"] for part in row["words"]).startswith("the river")
    assert len(sizes) > 2
    assert max(sizes) <= 1_024
    del head.__dict__["probabilities"]
    assert piece == explain(head, (text,), head.labels.names.index(row["label"]))[0].to_dict()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/completions"])
def test_combining_marks_are_read_in_linear_time(base_folder: Path, path: str) -> None:
    """Composing 1 MB of alternating marks took minutes, in which nobody was answered."""
    text = "a" + "\u0323\u0301" * 160_000
    with serving(base_folder) as (client, _):
        answer = client.post(
            path, json={"prompt": text, "max_tokens": 1} if path != "/tokenize" else {"prompt": text}
        )
    assert answer.status_code == (200 if path == "/tokenize" else 400)


def test_a_call_without_a_model_goes_to_the_first_that_has_it(
    base_folder: Path, masked_folder: Path, task_folders: dict[str, Path]
) -> None:
    models = opened(
        f"blanks={masked_folder}", f"base={base_folder}", f"classes={task_folders['classify']}", slots=1
    )
    with TestClient(create_app(models, ServeConfig()), base_url="http://localhost") as client:
        for path, body, name in (
            ("/v1/completions", {"prompt": "the", "max_tokens": 1}, "base"),
            ("/inspect", {"prompt": "the"}, "base"),
            ("/classify", {"input": "the"}, "classes"),
            ("/v1/fill", {"input": "the [MASK]"}, "blanks"),
            ("/v1/embeddings", {"input": "the"}, "blanks"),
        ):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.json()["model"]) == (200, name), path


def test_tokenize_counts_what_a_completion_reads(base_folder: Path) -> None:
    prompt = "cafe\u0301 re\u0301sume\u0301"
    with serving(base_folder) as (client, _):
        counted = client.post("/tokenize", json={"prompt": prompt}).json()["count"]
        used = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()["usage"]
    assert counted == used["prompt_tokens"]


def test_the_names_of_tokens_end_with_their_model(base_folder: Path) -> None:
    (served,) = opened(str(base_folder), slots=1)
    assert served.token_name(5) == served.token_name(5)
    tokenizer = weakref.ref(served.lm.tokenizer)
    del served
    gc.collect()
    assert tokenizer() is None


def test_a_client_that_leaves_before_a_stream_is_counted(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        server = Server(
            opened(f"base={base_folder}", slots=1),
            ServeConfig(),
        )
        server.start()

        async def never(_: OpenRequest) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await EventStream(server, None, never)(scope, receive, send)

        async def leave() -> Any:
            return {"type": "http.disconnect"}

        guard = Guard(app, config=ServeConfig(), keys=None, metrics=server.metrics)
        with pytest.raises(IndexError):  # nothing was sent
            await _ask(guard, _scope("/v1/completions", method="GET"), leave)
        text = server.metrics.text().decode()
        server.stop()
        assert 'headwater_requests_total{model="base",path="other",status="499"} 1.0' in text
        assert "headwater_disconnected_total 1.0" in text
        assert server.find(None).requests == 0

    asyncio.run(scenario())
