"""What requests look like: the OpenAI API's completions and embeddings, and our own calls.

Names and defaults are OpenAI's; those of the other fields are vLLM's. docs/serving.md lists every field.
Types are strict: "12" is not a number. A list is checked up to its first error, and its length is bounded, so that
a wrong body costs no more than a right one.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from headwater.inference import GenerateOptions
from headwater.serve.problems import Problem

MOST_BIASED, MOST_FIELDS = 1_024, 256
TokenId = Annotated[int, Field(ge=0, le=2**31)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
Strings = Annotated[list[str], Field(fail_fast=True)]
Texts = str | Strings | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MOST_ALTERNATIVES = 20


def _few(fields: Any) -> Any:
    """Refuse a long object before its entries are checked."""
    if isinstance(fields, dict) and len(fields) > MOST_BIASED:
        raise ValueError(f"it has {len(fields):,} entries; the most is {MOST_BIASED:,}")
    return fields


def _token_id(key: str) -> int:
    """Return the token id that a key of JSON is; pydantic would also read "1_0" and "1.0"."""
    if not (key.isascii() and key.isdecimal()):
        raise ValueError(f"{key[:40]!r} is not a token id")
    return int(key)


_Key = Annotated[TokenId, BeforeValidator(_token_id)]
Bias = Annotated[dict[_Key, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_few)]


class Body(BaseModel):
    """Base of every request: strict types, no unknown keys, finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str | None = Field(default=None, description="Default: the first that has this call.")

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, fields: Any) -> Any:
        """Raise Problem for many fields: an error for each unknown one would take long."""
        if isinstance(fields, dict) and len(fields) > MOST_FIELDS:
            raise Problem(400, f"The body has {len(fields):,} fields; the most is {MOST_FIELDS}.")
        return fields


class StreamOptions(BaseModel):
    """How a stream is sent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(default=None, description="Without effect.")


# vLLM's fields that this server does not have, with vLLM's defaults: many clients send every field.
_DEFAULTS_OF_VLLM: dict[str, Any] = {
    **{"include_stop_str_in_output": False, "skip_special_tokens": True, "truncate_prompt_tokens": None},
    **{"allowed_token_ids": None, "bad_words": [], "logprob_token_ids": None, "logits_processors": []},
    **{"response_format": {"type": "text"}, "structured_outputs": None, "prompt_embeds": [], "priority": 0},
    **{"stream_interval": 1, "repetition_detection": None, "cache_salt": None, "return_token_offsets": False},
    **{"thinking_token_budget": -1, "use_beam_search": False, "length_penalty": 1.0, "watermarking": False},
    **{"return_mm_kwargs": True, "routed_experts_prompt_start": 0, "kv_transfer_params": None},
    **{"ec_transfer_params": None, "vllm_xargs": None, "prompt_logprobs": None, "request_id": None},
    **{"return_tokens_as_token_ids": False},
}


_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict")  # three names of one field


class CompletionRequest(Body):
    """Continue a prompt, or each of several."""

    prompt: Texts | None = Field(default=None, description="Text or token ids. Default: begin a new text.")
    best_of: int | None = Field(default=None, description="0: the same as n. Others are not supported.")
    echo: bool | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Bias | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    max_tokens: Annotated[int, Field(ge=-1, le=2**31)] | None = Field(
        default=16,
        validation_alias=AliasChoices(*_TOKEN_LIMITS),
        description="-1: as many as fit the context.",
    )
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
    return_token_ids: bool | None = Field(default=None, description="Adds ids to the choices and logprobs.")
    spaces_between_special_tokens: bool | None = Field(default=None, description="Without effect.")
    truncation_side: Literal["left", "right"] | None = Field(default=None, description="Without effect.")
    session_id: str | None = Field(default=None, description="Without effect.")

    @model_validator(mode="before")
    @classmethod
    def _join_token_limits(cls, fields: Any) -> Any:
        """Keep one of the names of `max_tokens`; raise Problem if they have different numbers."""
        if not isinstance(fields, dict):
            return fields
        sent = {name: fields[name] for name in _TOKEN_LIMITS if name in fields}
        limits = {name: value for name, value in sent.items() if value is not None}
        first = next(iter((limits or sent).items()), None)
        for name, value in limits.items():
            if first is not None and value != first[1]:
                message = (
                    f"{name} is {str(value)[:40]}, and {first[0]} {str(first[1])[:40]}; expected one of them."
                )
                raise Problem(400, message, param=name)
        return {key: value for key, value in fields.items() if key not in sent} | dict([first] if first else [])

    @model_validator(mode="before")
    @classmethod
    def _drop_defaults_of_vllm(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        ask_for_nothing = {k for k, value in _DEFAULTS_OF_VLLM.items() if fields.get(k) in (None, value)}
        return {key: value for key, value in fields.items() if key not in ask_for_nothing}

    def options(self) -> GenerateOptions:
        """Return the options of the engine's request; those that are null have its defaults."""
        sent = self.model_dump(include=set(GenerateOptions.__annotations__), exclude_none=True)
        options = cast("GenerateOptions", sent)
        options |= {
            "seed": secrets.randbits(32) if self.seed is None else self.seed % 2**64,
            "stop_tokens": self.stop_token_ids or (),
            "ignore_end": bool(self.ignore_eos),
            "top_k": max(0, self.top_k or 0),
            "bias": self.logit_bias or {},
            "alternatives": self.logprobs,
        }
        if (self.max_tokens or 0) < 1:
            options["max_tokens"] = None
        if self.top_p == 0:  # leaves only the most probable token
            options |= {"temperature": 0.0, "top_p": 1.0}
        return options


class TokenizeRequest(Body):
    """A text to split into tokens, as in vLLM."""

    prompt: str
    add_special_tokens: bool | None = Field(default=None, description="Without effect: there are none to add.")
    return_token_strs: bool | None = None


class EmbeddingRequest(Body):
    """The mean of a text's final states."""

    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, description="Not supported: the width is the model's.")
    user: str | None = None
    normalize: bool | None = Field(default=None, description="false: the mean as it is, not of length 1.")


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
    head: HeadNumber | None = Field(
        default=None,
        description="Also how this head, [layer, head] from 0, and the MLP of its layer come to their output.",
    )
    units: Annotated[int, Field(ge=1, le=64)] = Field(default=8, description="Hidden units of that MLP.")
    continuation: Annotated[int, Field(ge=0, le=32)] = Field(
        default=0, description="Also this many of the likeliest tokens in turn."
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        default=None, description="Also the random number that a completion with this seed draws."
    )
    step: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Tokens generated before that draw."
    )
