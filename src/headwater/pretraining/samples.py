"""Samples of a model while it trains: shown on the terminal, and kept in `samples.jsonl` of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import UsageError
from headwater.inference import LanguageModel, encode_prompts
from headwater.reading import intact_json_lines
from headwater.storage import Progress, write_json_lines
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.pretraining.recipe import PretrainConfig

SAMPLES = "samples.jsonl"
_TOKENS = 60
_KEPT = 1_000  # lines; older ones are dropped


def require_samples(config: PretrainConfig, tokenizer: Tokenizer, *, sharded: bool) -> None:
    """Raise UsageError if the model of a resolved recipe cannot write samples after the prompt."""
    if sharded:
        raise UsageError(
            "sample_every needs the whole model on one rank", repair="Leave sample_every or shard out"
        )
    if not config.architecture.is_causal:
        raise UsageError("sample_every is for models that generate text", repair="Leave sample_every out")
    if (length := prompt_length(config, tokenizer)) >= config.window:
        raise UsageError(
            f"sample_prompt has {length:,} tokens, and the context {config.window:,}",
            expected=f"a prompt of at most {config.window - 1:,} tokens",
            repair="Use a shorter --set sample_prompt, or a longer --set context",
        )


def prompt_length(config: PretrainConfig, tokenizer: Tokenizer) -> int:
    """Return the tokens of the prompt of the samples."""
    return len(encode_prompts(tokenizer, [config.sample_prompt])[0])


def write_sample(
    model: Any, step: int, config: PretrainConfig, tokenizer: Tokenizer, out: Path, progress: Progress
) -> None:
    """Write a sample of the model after update `step` to the run in `out`, and show it.

    A sample depends on the weights, the prompt and the seed. It does not change the training.
    """
    training, path = model.training, out / SAMPLES
    precision = "bf16" if "bfloat16" in str(next(model.parameters()).dtype) else "fp32"
    lm = LanguageModel(model, tokenizer, precision=precision)
    most = min(_TOKENS, config.window - prompt_length(config, tokenizer))
    try:
        text = lm.generate(config.sample_prompt, max_tokens=most, seed=config.seed)
    finally:
        model.train(training)
    earlier = [line for line in intact_json_lines(path) if line["step"] < step] if path.exists() else []
    write_json_lines(path, [*earlier[-_KEPT:], {"step": step, "prompt": config.sample_prompt, "text": text}])
    shown = " ".join(text.lstrip("\ufffd").split())  # without the half of a character that it may begin with
    progress.note(f"update {step:,}: {config.sample_prompt}{shown}")
