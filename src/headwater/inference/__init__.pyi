from .engine import Engine, Generation
from .inspection import Floats, HeadSteps, Inside, Units, continue_greedily, look_inside
from .language_model import LanguageModel, fresh_seed, load
from .masked import evaluated, fill, framed, require_causal
from .network import DecodeRow, Network, Precision, PromptChunk, Runner
from .request import (
    DEFAULT_TOKENS,
    Event,
    GenerateOptions,
    Request,
    TextStream,
    encode_prompts,
    require_context,
    require_ids,
    stream_text,
)
from .sampling import Alternatives, uniform
from .scorer import Scorer, after_start, encode_pairs, windows
from .shared_prefixes import FOREST_ROWS, Forest

__all__ = [
    "DEFAULT_TOKENS",
    "FOREST_ROWS",
    "Alternatives",
    "DecodeRow",
    "Engine",
    "Event",
    "Floats",
    "Forest",
    "GenerateOptions",
    "Generation",
    "HeadSteps",
    "Inside",
    "LanguageModel",
    "Network",
    "Precision",
    "PromptChunk",
    "Request",
    "Runner",
    "Scorer",
    "TextStream",
    "Units",
    "after_start",
    "continue_greedily",
    "encode_pairs",
    "encode_prompts",
    "evaluated",
    "fill",
    "framed",
    "fresh_seed",
    "load",
    "look_inside",
    "require_causal",
    "require_context",
    "require_ids",
    "stream_text",
    "uniform",
    "windows",
]
