"""What requests and answers look like: the OpenAI API's completions and embeddings, and our own calls.

Names and defaults are those of OpenAI's specification. Beyond it: `top_k`, `min_tokens`, `repetition_penalty`
and `return_token_ids`. Types are strict: "12" is no number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TokenIds = list[Annotated[int, Field(ge=0, le=2**31)]]
Texts = str | list[str] | TokenIds | list[TokenIds]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MOST_ALTERNATIVES = 20


class Body(BaseModel):
    """Base of every request: strict types, no unknown keys, finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str | None = Field(default=None, description="One of /v1/models; none is the first.")


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
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = 16
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[list[StopText], Field(max_length=16)] | StopText | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: str | None = Field(default=None, description="Not supported: the model writes forwards only.")
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    user: str | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    return_token_ids: bool | None = Field(default=None, description="Adds ids to the choices and logprobs.")


class EmbeddingRequest(Body):
    """The mean of a text's final states."""

    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, description="Not supported: the width is the model's.")
    user: str | None = None


class ScoreRequest(Body):
    """Pairs of texts: how alike they are, or how likely the second is behind the first."""

    text_1: str | list[str]
    text_2: str | list[str]


class ClassifyRequest(Body):
    """Texts for a fine-tuned model: one a row, or its parts.

    entail: [premise, hypothesis]; similarity: [first, second]; choice: [context, question, answer, answer, …].
    """

    input: str | list[str] | list[list[str]]
    explain: bool | None = Field(default=None, description="Also say which words moved the decision.")


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
    heads_off: Annotated[list[HeadNumber], Field(max_length=4096)] = Field(
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


class Completion(BaseModel):
    """The answer of /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class Embedding(BaseModel):
    """One text's vector: numbers, or their little-endian float32 bytes in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The answer of /v1/embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Score(BaseModel):
    """One pair's score; is_greedy where it is a log-probability."""

    index: int
    score: float
    is_greedy: bool | None = None


class Scores(BaseModel):
    """The answer of /score. meaning: "similarity" or "log_probability"."""

    object: Literal["list"]
    model: str
    meaning: Literal["similarity", "log_probability"]
    data: list[Score]


class Word(BaseModel):
    """A part of a row, and by how much it changes the answer's probability (the score of a similarity)."""

    segment: int
    text: str
    change: float


class Label(BaseModel):
    """One row's answer."""

    index: int
    label: str | int | float
    probabilities: dict[str, float]
    words: list[Word] | None = None


class Labels(BaseModel):
    """The answer of /classify."""

    object: Literal["list"]
    model: str
    task: str
    data: list[Label]


class Candidate(BaseModel):
    """A token that might come next."""

    token: int
    text: str
    probability: float


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


class Continuation(BaseModel):
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
    layers: list[list[Candidate]]
    target: Followed
    norms: list[float]
    writes: list[list[float]]
    recent: RecentAttention | None
    embeddings: EmbeddingRows | None
    logits: str | None
    continuation: Continuation | None
    uniform: float | None


class ModelCard(BaseModel):
    """One model of this server."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context: int
    vocabulary: int
    layers: int
    heads: int
    task: str | None
    labels: list[str] | None


class ModelList(BaseModel):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every answer that is no success."""

    error: ErrorDetail


class Health(BaseModel):
    """The answer of /health."""

    status: Literal["ok"]
    models: list[str]


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "The request is wrong",
        401: "No valid API key",
        403: "Another host's name",
        404: "No such model or page",
        405: "No such method",
        408: "The body took too long",
        413: "The body is too large",
        429: "The queue is full: see Retry-After",
        500: "A fault of the server",
        503: "The server is stopping",
        504: "The request took too long",
    }.items()
}
