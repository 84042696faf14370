"""What the server answers: OpenAI's objects, and those of our own calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


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
    prompt_token_ids: list[int] | None = None
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
    object: Literal["score"]
    score: float
    is_greedy: bool | None = None


class Scores(BaseModel):
    """The answer of /score. meaning: "similarity" or "log_probability"."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    meaning: Literal["similarity", "log_probability"]
    data: list[PairScore]
    usage: Usage


class Word(BaseModel):
    """A part of a row, and by how much it changes the answer's probability (the score of a similarity)."""

    segment: int
    text: str
    change: float


class Label(BaseModel):
    """One row's answer; tokens_cut: how many tokens of the row did not fit the context and were not read."""

    index: int
    label: str | int | float | list[str] | None
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


class ModelCard(BaseModel):
    """One model of this server."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: None
    parent: None
    max_model_len: int
    context: int
    vocabulary: int
    layers: int
    heads: int
    task: str | None
    labels: list[str] | None
    masked: bool
    language: str | None
    run: bool


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
    """The answer of /health. With status code 503: "failed", a model's thread has ended, and "draining"."""

    status: Literal["ok", "failed", "draining"]
    models: list[str]
    failed: list[str]
