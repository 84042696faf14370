from .cost import training_flops_per_token, training_seconds
from .masking import CHOSEN
from .objectives import l1, masked
from .plan import forecast, seconds_per_update
from .pretraining import pretrain
from .rate_search import find_rate
from .recipe import PretrainConfig, require_one_model, tokenizer_of
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
    "check_ids",
    "find_rate",
    "finish_tokens",
    "forecast",
    "l1",
    "masked",
    "pack",
    "pretrain",
    "require_one_model",
    "seconds_per_update",
    "shard_paths",
    "tokenizer_of",
    "tokens_stage",
    "training_flops_per_token",
    "training_seconds",
]
