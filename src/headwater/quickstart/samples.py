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
from headwater.reading import read_json
from headwater.storage import SILENT, Progress, Stage, write_json

SAMPLES = "samples.json"


def write_samples(
    model: Path,
    prompts: Sequence[str],
    out: Path,
    *,
    max_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 40,
    seed: int = 1,
    device: str = "auto",
    progress: Progress = SILENT,
) -> list[dict[str, Any]]:
    """Continue each prompt, write the samples folder `out` unless it is complete, and return the samples."""
    options = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k}
    config = {"prompts": list(prompts), **options}
    stage = Stage(out, kind="samples", config=config, inputs={"model": model}, seed=seed)
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        written: list[dict[str, Any]] = read_json(out / SAMPLES)
        return written
    progress.start("samples", len(prompts), "samples")
    lm = load(model, device=device)
    samples: list[dict[str, Any]] = []
    for prompt in prompts:
        pieces = _pieces(lm, prompt, {**options, "seed": seed})
        text = "".join(piece["text"] for piece in pieces)
        samples.append({"prompt": prompt, "text": text, **options, "seed": seed, "tokens": pieces})
        progress.advance(len(samples))
    with stage.write() as work:
        write_json(work / SAMPLES, samples)
    progress.finish(counted(len(samples), "sample"))
    return samples


def _pieces(lm: LanguageModel, prompt: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = []
    held = 0.0  # log-probability of tokens whose text is not complete yet
    for event in lm.submit(prompt, **options, alternatives=0):
        if event.alternatives is not None:
            held += event.alternatives.log_probability
        if event.text:
            pieces.append({"text": event.text, "probability": math.exp(held)})
            held = 0.0
    return pieces
