from .forecasting import forecast, seconds_per_update
from .masking import CHOSEN
from .objectives import l1, masked
from .pretraining import pretrain
from .recipe import PretrainConfig, require_one_model, tokenizer_of
from .tokens.other_projects import convert_tokens, holds_tokens
from .tokens.pack import MINIMUM_TOKENS, pack
from .tokens.sampler import Sampler, TokenBatch, TokenStream, shard_paths
from .tokens.shards import check_ids

__all__ = [
    "CHOSEN",
    "MINIMUM_TOKENS",
    "PretrainConfig",
    "Sampler",
    "TokenBatch",
    "TokenStream",
    "check_ids",
    "convert_tokens",
    "forecast",
    "holds_tokens",
    "l1",
    "masked",
    "pack",
    "pretrain",
    "require_one_model",
    "seconds_per_update",
    "shard_paths",
    "tokenizer_of",
]
