"""What the tests of openai-python ask of a server, in our own words: every answer has the types that it declares.

Of its 115 assertions those on completions, models and embeddings apply. Refused on purpose:

- a chat, and all that is built on one: these models have no chat template;
- `suffix`: the model only continues a text;
- `models.delete`: a client removes no model from a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

EVERYTHING: dict[str, Any] = {
    "model": "base",
    "prompt": "the river",
    "best_of": 0,
    "echo": True,
    "frequency_penalty": -2,
    "logit_bias": {"5": 0},
    "logprobs": 0,
    "max_tokens": 16,
    "n": 1,
    "presence_penalty": -2,
    "seed": 0,
    "stop": "\n",
    "temperature": 1,
    "top_p": 1,
    "user": "user-1",
}


@pytest.fixture(scope="module", params=[False, True], ids=["loose", "strict"])
def client(server: Any, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """Strict: a value of another type than declared is an error of the client."""
    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(
            base_url=f"{server.url}/v1",
            api_key="any",
            max_retries=0,
            http_client=http,
            _strict_response_validation=request.param,
        ) as client,
    ):
        yield client


def test_a_completion_has_the_declared_types(client: openai.OpenAI) -> None:
    least = client.completions.create(model="base", prompt="the river")
    # A prompt's first token has no log-probability: null, as OpenAI sends it, which the strict client refuses.
    strict = client._strict_response_validation
    whole = client.completions.create(**EVERYTHING | ({"echo": False} if strict else {}))
    for answer in (least, whole):
        assert answer.object == "text_completion"
        assert answer.choices[0].finish_reason in {"stop", "length"}
        assert answer.usage is not None
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    raw = client.completions.with_raw_response.create(model="base", prompt="the river", seed=1)
    assert raw.parse().choices
    with client.completions.with_streaming_response.create(model="base", prompt="the river") as response:
        assert response.parse().choices


def test_a_stream_of_completions_has_the_declared_types(client: openai.OpenAI) -> None:
    options = {"include_usage": True, "include_obfuscation": True}
    stream = client.completions.create(**EVERYTHING, stream=True, stream_options=options)
    if client._strict_response_validation:  # refuses the null that a chunk has before the last as finish_reason
        stream.response.close()
    else:
        chunks = list(stream)
        assert chunks[-1].usage is not None
        assert {chunk.object for chunk in chunks} == {"text_completion"}
    with client.completions.with_streaming_response.create(
        model="base", prompt="the river", stream=True
    ) as response:
        response.parse().close()


def test_models_and_embeddings_have_the_declared_types(client: openai.OpenAI) -> None:
    (first, *_) = client.models.list()
    assert client.models.retrieve(first.id) == first
    answer = client.embeddings.create(model="base", input=["the river", "a stone"], encoding_format="float")
    assert [one.index for one in answer.data] == [0, 1]
    if not client._strict_response_validation:  # asks for base64, which it refuses before it decodes it
        assert client.embeddings.create(model="base", input="the river").data[0].embedding


def test_every_answer_has_a_request_id(client: openai.OpenAI) -> None:
    answers = [client.completions.create(model="base", prompt="the", max_tokens=1) for _ in range(2)]
    ids = {answer._request_id for answer in answers}
    assert len(ids) == 2
    assert None not in ids
    assert client.models.list()._request_id
    chosen = {"X-Request-Id": "mine-7"}
    assert client.models.with_raw_response.list(extra_headers=chosen).request_id == "mine-7"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("none")
    assert missing.value.request_id


def test_the_asynchronous_client_is_served_too(server: Any) -> None:
    async def ask() -> None:
        async with (
            httpx.AsyncClient(trust_env=False) as http,
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", http_client=http) as client,
        ):
            whole = await client.completions.create(model="base", prompt="the river", seed=1)
            stream = await client.completions.create(model="base", prompt="the river", seed=1, stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text

    asyncio.run(ask())


def test_what_is_refused_is_refused_with_a_reason(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client.chat.completions.create(model="base", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(openai.BadRequestError, match="only writes forwards"):
        client.completions.create(model="base", prompt="the", suffix="end")
    with pytest.raises(openai.APIStatusError) as refused:
        client.models.delete("base")
    assert refused.value.status_code == 405
