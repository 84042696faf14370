"""A samples folder: continuations of some prompts, each piece of text with its probability.

`samples.json` is a list of {prompt, text, seed, temperature, top_k, tokens: [{text, probability}]}. A character of
several tokens is one piece, with the product of their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.display import counted
from headwater.inference import LanguageModel, load
from headwater.storage import Progress, Stage, write_json

SAMPLES = "samples.json"
_OPTIONS: dict[str, Any] = {"max_tokens": 100, "temperature": 0.8, "top_k": 40}


def write_samples(
    model: Path,
    prompts: Sequence[str],
    out: Path,
    *,
    seed: int,
    device: str,
    progress: Progress,
) -> None:
    """Continue each prompt, and write the samples folder `out` unless it is complete."""
    config = {"prompts": list(prompts), **_OPTIONS, "seed": seed}
    stage = Stage(out, kind="samples", config=config, inputs={"model": model})
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        return
    progress.start("samples", len(prompts), "samples")
    lm = load(model, device=device)
    samples: list[dict[str, Any]] = []
    for prompt in prompts:
        pieces = _pieces(lm, prompt, {**_OPTIONS, "seed": seed})
        text = "".join(piece["text"] for piece in pieces)
        samples.append({"prompt": prompt, "text": text, **_OPTIONS, "seed": seed, "tokens": pieces})
        progress.advance(len(samples))
    with stage.write() as work:
        write_json(work / SAMPLES, samples)
    progress.finish(counted(len(samples), "sample"))


def _pieces(lm: LanguageModel, prompt: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = []
    held = 0.0  # log-probability of tokens whose text is not complete yet
    for event in lm.submit(prompt, **options, alternatives=0, beyond_context="shift"):
        if event.alternatives is not None:
            held += event.alternatives.log_probability
        if event.text:
            pieces.append({"text": event.text, "probability": math.exp(held)})
            held = 0.0
    return pieces
