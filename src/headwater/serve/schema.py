"""What requests and answers look like: the OpenAI API's completions and embeddings, and our own calls.

Names and defaults are those of OpenAI's specification; beyond it are vLLM's. docs/serving.md lists every field.
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

    model: str | None = Field(default=None, description="One of /v1/models; none is the first.")

    def given(self, name: str) -> bool:
        """Return whether the request has a field, and not as null."""
        return name in self.model_fields_set and getattr(self, name) is not None


class StreamOptions(BaseModel):
    """How a stream is sent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CompletionRequest(Body):
    """Continue a prompt, or each of several."""

    prompt: Texts | None = Field(default=None, description="Text or token ids; none begins a new text.")
    best_of: Annotated[int, Field(ge=1, le=20)] | None = None
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
    suffix: str | None = Field(default=None, description="Not supported: the model writes forwards only.")
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    user: str | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = Field(default=None, description="0 and -1: all tokens.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MOST_BIASED, fail_fast=True)] | None = None
    ignore_eos: bool | None = Field(default=None, description="Write on after <|endoftext|>.")
    add_special_tokens: bool | None = Field(default=None, description="Without effect: there are none to add.")
    prompt_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    return_token_ids: bool | None = Field(default=None, description="Adds ids to the choices and logprobs.")


class ChatRequest(BaseModel):
    """A chat, which is refused: anything may be in it."""

    model_config = ConfigDict(extra="allow")


class TokenizeRequest(Body):
    """A text to split into tokens, as vLLM has it."""

    prompt: str
    add_special_tokens: bool | None = Field(default=None, description="Without effect: there are none to add.")
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    """Token ids to join into a text, as vLLM has it."""

    tokens: TokenIds


class EmbeddingRequest(Body):
    """The mean of a text's final states."""

    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, description="Not supported: the width is the model's.")
    user: str | None = None
    normalize: bool | None = Field(default=None, description="false: the mean as it is, not of length 1.")


class ScoreRequest(Body):
    """Pairs of texts: how alike they are, or how likely the second is behind the first."""

    text_1: str | Strings
    text_2: str | Strings


class ClassifyRequest(Body):
    """Texts for a fine-tuned model: one a row, or its parts.

    entail: [premise, hypothesis]; similarity: [first, second]; choice: [context, question, answer, answer, …].
    """

    input: str | Strings | Annotated[list[Strings], Field(fail_fast=True)]
    explain: bool | None = Field(default=None, description="Also say which words moved the decision.")


class FillRequest(Body):
    """A text with `[MASK]` in place of some words, for a masked model."""

    input: str
    top: Annotated[int, Field(ge=1, le=200)] = Field(default=5, description="Tokens of each blank.")


HeadNumber = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class InspectRequest(Body):
    """A text, and the position in it to look at; none is the last."""

    prompt: str | TokenIds
    position: Annotated[int, Field(ge=0)] | None = None
    top: Annotated[int, Field(ge=1, le=200)] = Field(default=5, description="Candidates of each state.")
    target: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        default=None, description="Token id to follow through the states; none is the token behind the position."
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


class Usage(BaseModel):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class LogProbabilities(BaseModel):
    """Token by token: its text, natural log-probability, alternatives, and where it begins in the text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
    top_token_ids: list[dict[str, int] | None] | None = None


class Choice(BaseModel):
    """One continuation."""

    index: int
    text: str
    logprobs: LogProbabilities | None
    finish_reason: Literal["stop", "length"] | None
    token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, dict[str, Any]] | None] | None = None


class Completion(BaseModel):
    """The answer of /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class EmbeddingObject(BaseModel):
    """One text's vector: numbers, or their little-endian float32 bytes in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """The answer of /v1/embeddings."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: Usage


class PairScore(BaseModel):
    """One pair's score; is_greedy where it is a log-probability."""

    index: int
    score: float
    is_greedy: bool | None = None


class Scores(BaseModel):
    """The answer of /score. meaning: "similarity" or "log_probability"."""

    object: Literal["list"]
    model: str
    meaning: Literal["similarity", "log_probability"]
    data: list[PairScore]


class Word(BaseModel):
    """A part of a row, and by how much it changes the answer's probability (the score of a similarity)."""

    segment: int
    text: str
    change: float


class Label(BaseModel):
    """One row's answer; tokens_cut: how many tokens of the row did not fit the context and were not read."""

    index: int
    label: str | int | float
    probabilities: dict[str, float]
    tokens_cut: int
    words: list[Word] | None = None


class Classification(BaseModel):
    """The answer of /classify."""

    object: Literal["list"]
    model: str
    task: str
    data: list[Label]


class TokenCandidate(BaseModel):
    """A token that may come next, or fill a blank."""

    token: int
    text: str
    probability: float


class Blank(BaseModel):
    """The most probable tokens of one `[MASK]`; position counts the text's tokens, with those that frame it."""

    position: int
    tokens: list[TokenCandidate]


class Blanks(BaseModel):
    """The answer of /v1/fill."""

    object: Literal["list"]
    model: str
    data: list[Blank]


class Followed(BaseModel):
    """One token in the predictions of all states: its rank, from 1, and its probability."""

    token: int
    text: str
    ranks: list[int]
    probabilities: list[float]


class RecentAttention(BaseModel):
    """Attention among the tokens from `start` on: (layer, head, size, size) bytes in base64; 255 is all of it."""

    start: int
    size: int
    data: str


class EmbeddingRows(BaseModel):
    """The two rows that are added up as the first state."""

    token: list[float]
    position: list[float]


class GreedyContinuation(BaseModel):
    """The likeliest tokens in turn."""

    token_ids: list[int]
    text: str


class Inspection(BaseModel):
    """What the model computes at one position.

    attention: by layer and head, the weights on positions 0 to `position`. layers: the next token as each state
    predicts it, the embeddings first. norms: each state's length; writes: the length of what attention and the
    MLP of each layer add. logits: of the last state, float32, little-endian, in base64.
    """

    model: str
    position: int
    token_ids: list[int]
    tokens: list[str]
    attention: list[list[list[float]]]
    layers: list[list[TokenCandidate]]
    target: Followed
    norms: list[float]
    writes: list[list[float]]
    recent: RecentAttention | None
    embeddings: EmbeddingRows | None
    logits: str | None
    continuation: GreedyContinuation | None
    uniform: float | None


class ModelCard(BaseModel):
    """One model of this server."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    context: int
    vocabulary: int
    layers: int
    heads: int
    task: str | None
    labels: list[str] | None
    masked: bool


class ModelList(BaseModel):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class Tokens(BaseModel):
    """The answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(BaseModel):
    """The answer of /detokenize."""

    prompt: str


class TokenizerInfo(BaseModel):
    """The answer of /tokenizer_info; bos_token and eos_token are null if the tokenizer has none (GPT-1's)."""

    tokenizer_class: str
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    chat_template: None


class Health(BaseModel):
    """The answer of /health. status: "failed", with status code 503, when a model's thread has ended."""

    status: Literal["ok", "failed"]
    models: list[str]
    failed: list[str]
