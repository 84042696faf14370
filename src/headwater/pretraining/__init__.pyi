from .cost import time_updates, training_flops_a_token
from .masking import CHOSEN
from .objectives import l1, masked
from .plan import find_rate, forecast, profile
from .pretraining import build_run, pretrain
from .profiling import as_table
from .rate_search import suggestion
from .recipe import PretrainConfig, require_one_model, resolve, tokenizer_of
from .tokens.pack import (
    LAST_SHARD_TOKENS,
    MINIMUM_TOKENS,
    PARTS,
    SHARD_TOKENS,
    ShardWriter,
    finish_tokens,
    pack,
    tokens_stage,
)
from .tokens.sampler import Sampler, TokenBatch, TokenStream, check_ids, shard_paths

__all__ = [
    "CHOSEN",
    "LAST_SHARD_TOKENS",
    "MINIMUM_TOKENS",
    "PARTS",
    "SHARD_TOKENS",
    "PretrainConfig",
    "Sampler",
    "ShardWriter",
    "TokenBatch",
    "TokenStream",
    "as_table",
    "build_run",
    "check_ids",
    "find_rate",
    "finish_tokens",
    "forecast",
    "l1",
    "masked",
    "pack",
    "pretrain",
    "profile",
    "require_one_model",
    "resolve",
    "shard_paths",
    "suggestion",
    "time_updates",
    "tokenizer_of",
    "tokens_stage",
    "training_flops_a_token",
]
