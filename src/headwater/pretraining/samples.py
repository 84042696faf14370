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


class Samples:
    """Writes a sample of the model after every `config.sample_every` updates.

    A sample depends on the weights, the prompt and the seed. It does not change the training.
    """

    def __init__(self, config: PretrainConfig, tokenizer: Tokenizer, out: Path, progress: Progress) -> None:
        self._config, self._tokenizer, self._progress = config, tokenizer, progress
        self._path = out / SAMPLES
        self._lines: list[dict[str, Any]] = list(intact_json_lines(self._path)) if self._path.exists() else []

    def __call__(self, model: Any, step: int) -> None:
        """Write and show a sample if one is due after update `step`."""
        config = self._config
        if step % config.sample_every:
            return
        training = model.training
        precision = "bf16" if "bfloat16" in str(next(model.parameters()).dtype) else "fp32"
        lm = LanguageModel(model, self._tokenizer, precision=precision)
        room = min(_TOKENS, config.window - prompt_length(config, self._tokenizer))
        try:
            text = lm.generate(config.sample_prompt, max_tokens=room, seed=config.seed)
        finally:
            model.train(training)
        self._lines = [line for line in self._lines if line["step"] < step][-_KEPT:]
        self._lines.append({"step": step, "prompt": config.sample_prompt, "text": text})
        write_json_lines(self._path, self._lines)
        shown = " ".join(text.lstrip("\ufffd").split())  # without the half of a character that it may begin with
        self._progress.note(f"update {step:,}: {config.sample_prompt}{shown}")
