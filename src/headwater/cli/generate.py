"""`headwater generate`: continue a text on the terminal, streamed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.console import (
    AsJson,
    ComputePrecision,
    Device,
    Download,
    ModelTokenizer,
    emit,
    local_model,
    read_stdin,
)
from headwater.display import counted, printable
from headwater.errors import UsageError
from headwater.shipped import DEFAULT
from headwater.storage import say

if TYPE_CHECKING:
    from headwater.inference import GenerateOptions, Generation

_MOST_SAMPLES = 100_000  # they wait in memory, about 3 kB each


def generate(
    words: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]",
            help="Text to continue; - or a pipe reads it from stdin. Without a prompt, a new text starts.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Model folder, a model that ships, or a hub name.")] = DEFAULT,
    download: Download = False,
    tokenizer: ModelTokenizer = None,
    prompt: Annotated[str | None, typer.Option(help="The same as PROMPT.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Stop after N tokens.", show_default="128 or what fits", min=1)
    ] = None,
    min_tokens: Annotated[int, typer.Option(help="Do not stop before N tokens.", min=0)] = 0,
    temperature: Annotated[
        float,
        typer.Option(help="Lower is safer, higher more varied; 0 always takes the most probable token.", min=0),
    ] = 0.8,
    top_k: Annotated[int, typer.Option(help="Choose among the K most probable tokens; 0 is all.", min=0)] = 40,
    top_p: Annotated[
        float, typer.Option(help="Choose among the most probable tokens whose probabilities add up to P.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1 makes tokens that occurred less probable.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text. Repeatable.", metavar="TEXT")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of every random choice.", show_default="a new one", min=0)
    ] = None,
    samples: Annotated[
        int,
        typer.Option("--samples", help="Number of continuations.", min=1, max=_MOST_SAMPLES),
    ] = 1,
    precision: ComputePrecision = "auto",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Print a prompt and its continuation. The same prompt, seed and options give the same text."""
    if None not in (words, prompt):
        raise UsageError("the prompt was given twice, as an argument and with --prompt", repair="Give only one")
    prompt = _prompt(words if prompt is None else prompt)
    folder = local_model(model, download)
    import headwater
    from headwater.config import option_layers
    from headwater.inference import Request, fresh_seed
    from headwater.reading import compose

    options: GenerateOptions = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "stop": tuple(stop or ()),
        "seed": fresh_seed() if seed is None else seed,
        "beyond_context": "shift",
        "alternatives": 0 if as_json else None,
    }
    Request.build({"prompt": ()}, *option_layers(options))  # a wrong value comes before the model is opened
    lm = headwater.load(folder, tokenizer=tokenizer, precision=precision, device=device, download=download)
    prompt, seed = compose(prompt), options["seed"]
    running = [lm.submit(prompt, **(options | {"sample": sample})) for sample in range(samples)]
    say(f"{model}: {lm!r}, {lm.engine.runner.name}, seed {seed}")
    if not prompt:
        say("The prompt is empty: a new text starts.")
    _warn_beyond_context(running[0], lm.config.context)
    if note := lm.tokenizer.note_of_unknown([running[0].request.prompt]):
        say(note)
    if as_json:
        result: dict[str, Any] = {"model": model, "precision": lm.precision, "prompt": prompt, "seed": seed}
        result["prompt_tokens"] = len(running[0].request.prompt)
        emit(result | {"samples": [_sample(generation) for generation in running]}, as_json=True, text="")
    else:
        _print_samples(running, prompt)


def _prompt(prompt: str | None) -> str:
    """Return the given prompt, else the text of a pipe or file on stdin, without its final newline."""
    piped = sys.stdin is not None and not sys.stdin.isatty()
    if prompt == "-" or (prompt is None and piped):
        return read_stdin().removesuffix("\n").removesuffix("\r")
    return prompt or ""


def _warn_beyond_context(generation: Generation, context: int) -> None:
    """Warn if the prompt and its continuation are longer than the model's context."""
    prompt = len(generation.request.prompt)
    if prompt > context:
        say(f"The prompt has {prompt:,} tokens, the model's context {context:,}: the model sees only its end.")
    elif prompt + generation.max_tokens > context + 1:
        say(
            f"{counted(prompt, 'token')} of prompt and up to {generation.max_tokens:,} more exceed the model's "
            f"context of {context:,}: its older half is dropped whenever it is full."
        )


def _print_samples(running: list[Generation], prompt: str) -> None:
    """Print the prompt and each continuation in turn; all are computed at the same time."""
    for number, generation in enumerate(running, start=1):
        if len(running) > 1:
            before = "\n" if number > 1 else ""
            say(f"{before}sample {number} of {len(running)}:")
        print(_printable(prompt), end="", flush=True)
        try:
            for event in generation:
                print(_printable(event.text), end="", flush=True)
        finally:
            print(flush=True)
        if generation.request.stop and generation.finished == "length":
            say(f"No stop text occurred: stopped after {counted(len(generation.tokens), 'token')}.")


def _printable(text: str) -> str:
    """Return the text; for a terminal with control characters escaped, since a model can write any bytes."""
    return printable(text, keep="\n\t") if sys.stdout.isatty() else text


def _sample(generation: Generation) -> dict[str, Any]:
    """Return a continuation, after waiting for its end."""
    log_probabilities = [event.alternatives.log_probability for event in generation if event.alternatives]
    return {
        "sample": generation.request.sample,
        "text": generation.text,
        "tokens": generation.tokens,
        "log_probabilities": [round(value, 6) for value in log_probabilities],
        "finished": generation.finished,
    }
