"""What a run says before it begins: how often it reads the text, the rate it reaches, what it keeps on disk."""

from __future__ import annotations

import shlex
from pathlib import Path

from headwater.display import byte_size, counted
from headwater.pretraining.recipe import PretrainConfig

# Repeated text is worth nearly as much as new text up to four passes, and little beyond sixteen (Muennighoff et
# al. 2023, "Scaling data-constrained language models", section 5).
MANY_PASSES = 8


def passes_of(config: PretrainConfig, train_tokens: int) -> float:
    """Return how often the run of a resolved recipe reads the training part."""
    return config.steps * config.batch_size * config.window / train_tokens


def passes_text(passes: float, train_tokens: int) -> str:
    """Return, for example, `9.8 passes over 10,095,107 tokens`."""
    return f"{passes:,.{1 if passes < 10 else 0}f} passes over {train_tokens:,} tokens"


def passes_warning(passes: float) -> str:
    """Return a warning of a run that reads its text very often; empty for other runs."""
    if passes < MANY_PASSES + 0.5:  # whole updates are a little more than the passes that were asked for
        return ""
    return (
        f"the text is read {passes:,.0f} times; beyond about {MANY_PASSES} passes a model learns it by heart. "
        f"Gather more text, or use --set epochs={MANY_PASSES} or a smaller model"
    )


def rate_text(asked: PretrainConfig, config: PretrainConfig) -> str:
    """Return the peak of the learning rate and the way there; asked: the recipe before it was resolved."""
    text = f"{config.learning_rate:g}"
    if config.warmup_steps >= 1:
        text += f" after a rise over {counted(round(config.warmup_steps), 'update')}"
    text += f", schedule {config.schedule}"
    if asked.warmup_steps > config.warmup_steps:
        text += (
            f"; warmup_steps = {asked.warmup_steps:g} was shortened: the run of {counted(config.steps, 'update')} "
            "would not have reached this rate"
        )
    elif config.warmup_steps > config.steps:
        reached = config.learning_rate * config.steps / config.warmup_steps
        text += f"; the run ends at {reached:.3g}, because its warmup_steps are more than its steps"
    return text


def kept_text(config: PretrainConfig, out: Path) -> str:
    """Return what the run keeps on disk: float32 weights and moments of each checkpoint."""
    moments = 1 if config.optimizer == "muon" else 2  # for nearly all weights
    size = 4 * (1 + moments) * config.architecture.parameter_count
    kept, prune = counted(config.keep, "checkpoint"), f"headwater prune {shlex.quote(str(out))}"
    return f"keeps {kept} of {byte_size(size)} and the best one; `{prune}` removes old ones"
