"""What requests and answers look like: the OpenAI API's completions and embeddings, and our own calls.

Names and defaults are OpenAI's; those of the other fields are vLLM's. docs/serving.md lists every field.
Types are strict: "12" is not a number. A list is checked up to its first error, and its length is bounded, so that
a wrong body costs no more than a right one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MOST_BIASED = 1_024
TokenId = Annotated[int, Field(ge=0, le=2**31)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
Strings = Annotated[list[str], Field(fail_fast=True)]
Texts = str | Strings | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MOST_ALTERNATIVES = 20


def _few(given: Any) -> Any:
    """Refuse a long object before its entries are checked."""
    if isinstance(given, dict) and len(given) > MOST_BIASED:
        raise ValueError(f"it has {len(given):,} entries; the most is {MOST_BIASED:,}")
    return given


Bias = Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_few)]


class Body(BaseModel):
    """Base of every request: strict types, no unknown keys, finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str | None = Field(default=None, description="One of /v1/models. Default: the first.")


class StreamOptions(BaseModel):
    """How a stream is sent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CompletionRequest(Body):
    """Continue a prompt, or each of several."""

    prompt: Texts | None = Field(default=None, description="Text or token ids. Default: begin a new text.")
    best_of: Annotated[int, Field(ge=0, le=20)] | None = Field(default=None, description="0: the same as n.")
    echo: bool | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Bias | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = 16
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | StopText | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: str | None = Field(default=None, description="Not supported: the model only continues a text.")
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    user: str | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = Field(default=None, description="0 and -1: all tokens.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MOST_BIASED, fail_fast=True)] | None = None
    ignore_eos: bool | None = Field(default=None, description="Continue after <|endoftext|>.")
    add_special_tokens: bool | None = Field(default=None, description="Without effect: there are none to add.")
    prompt_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    return_token_ids: bool | None = Field(default=None, description="Adds ids to the choices and logprobs.")


class ChatRequest(BaseModel):
    """A chat, which is refused: anything may be in it."""

    model_config = ConfigDict(extra="ignore")


class TokenizeRequest(Body):
    """A text to split into tokens, as in vLLM."""

    prompt: str
    add_special_tokens: bool | None = Field(default=None, description="Without effect: there are none to add.")
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    """Token ids to join into a text, as in vLLM."""

    tokens: TokenIds


class EmbeddingRequest(Body):
    """The mean of a text's final states."""

    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, description="Not supported: the width is the model's.")
    user: str | None = None
    normalize: bool | None = Field(default=None, description="false: the mean as it is, not of length 1.")


class ScoreRequest(Body):
    """Pairs of texts: how similar they are, or how probable the second is after the first."""

    text_1: str | Strings
    text_2: str | Strings


class ClassifyRequest(Body):
    """Texts for a fine-tuned model: one a row, or its parts.

    entail: [premise, hypothesis]; similarity: [first, second]; choice: [context, question, answer, answer, …].
    """

    input: str | Strings | Annotated[list[Strings], Field(fail_fast=True)]
    explain: bool | None = Field(default=None, description="Also return how much each word changes the answer.")


class FillRequest(Body):
    """A text with `[MASK]` in place of some words, for a masked model."""

    input: str
    top: Annotated[int, Field(ge=1, le=200)] = Field(default=5, description="Tokens of each blank.")


HeadNumber = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class InspectRequest(Body):
    """A text, and a position in it to inspect, by default the last."""

    prompt: str | TokenIds
    position: Annotated[int, Field(ge=0)] | None = None
    top: Annotated[int, Field(ge=1, le=200)] = Field(default=5, description="Candidates of each state.")
    target: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        default=None, description="Token id to follow through the states. Default: the token after the position."
    )
    window: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="Also the attention among this many last tokens, in all heads."
    )
    details: bool = Field(default=False, description="Also the embeddings and the logits.")
    heads_off: Annotated[list[HeadNumber], Field(max_length=4096, fail_fast=True)] = Field(
        default=[], description="[layer, head] from 0: their output is replaced by zeros."
    )
    continuation: Annotated[int, Field(ge=0, le=32)] = Field(
        default=0, description="Also this many of the likeliest tokens in turn."
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        default=None, description="Also the random number that a completion with this seed draws."
    )
    step: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Tokens generated before that draw."
    )
