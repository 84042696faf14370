"""`headwater generate`: continue a text on the terminal, streamed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.console import AsJson, Seed, emit, say, tell_apart
from headwater.shipped import DEFAULT
from headwater.wording import counted

if TYPE_CHECKING:
    from headwater.inference.engine import Generation
    from headwater.inference.request import Event
    from headwater.language_model import LanguageModel

app = typer.Typer(add_completion=False)

# Least to most likely, as colours of the usual 256: dark red, orange, yellow, green.
_TINTS = (124, 166, 172, 178, 148, 112, 71)
# Control characters but tab and newline, shown as U+FFFD.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


@app.command()
def generate(
    model: Annotated[
        str, typer.Option("--model", help="Model folder, a model that ships, or a hub name that was downloaded.")
    ] = DEFAULT,
    prompt: Annotated[
        str,
        typer.Option("--prompt", help="Text to continue; - reads it from stdin; none begins a new text."),
    ] = "",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="End after N tokens.  [default: 128 or what fits]", min=1)
    ] = None,
    min_tokens: Annotated[int, typer.Option("--min-tokens", help="Do not end before N tokens.", min=0)] = 0,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Below 1 is safer, above 1 wilder, 0 always the likeliest.")
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option("--top-k", help="Choose among the K likeliest (papers: 40); 0 is all.", min=0)
    ] = 0,
    top_p: Annotated[
        float, typer.Option("--top-p", help="Choose among the likeliest that make up this probability.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option("--repetition-penalty", help="Above 1 avoids tokens that occurred.")
    ] = 1.0,
    original_filters: Annotated[
        bool,
        typer.Option(
            "--original-filters", help="Top-p as OpenAI's code has it: without the token that crosses p."
        ),
    ] = False,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="End before this text. Repeatable.", metavar="TEXT")
    ] = None,
    seed: Seed = 0,
    samples: Annotated[int, typer.Option("--samples", help="How many continuations.", min=1)] = 1,
    shift: Annotated[
        bool,
        typer.Option("--shift", help="Go on past the model's context: drop its older half whenever it is full."),
    ] = False,
    precision: Annotated[
        str, typer.Option("--precision", help="fp32, bf16, int8 or auto (bf16 where the machine has it).")
    ] = "auto",
    color: Annotated[
        bool, typer.Option("--color", help="Tint each token by its probability: red is unlikely, green likely.")
    ] = False,
    interactive: Annotated[
        bool,
        typer.Option("--interactive", help="Continue what you type, again and again, keeping all text so far."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a text. The same prompt, seed and options give the same text."""
    _check_together(interactive=interactive, as_json=as_json, color=color, samples=samples, prompt=prompt)
    if prompt == "-":
        prompt = _standard_input()
    tell_apart(model)
    import headwater

    lm = headwater.load(model, precision=precision)
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "filters": "original" if original_filters else "usual",
        "stop": tuple(stop or ()),
        "seed": seed,
        "beyond_context": "shift" if shift or interactive else "refuse",
        "alternatives": 0 if color or as_json else None,
    }
    if interactive:
        _converse(lm, prompt, options, color)
        return
    running = [lm.submit(prompt, **options, sample=sample) for sample in range(samples)]
    say(f"{model}: {lm!r}, {lm.engine.runner.name}, seed {seed}")
    if not prompt:
        say("The prompt is empty: a new text begins, after <|endoftext|>.")
    if as_json:
        asked = {"model": model, "precision": lm.precision, "prompt": prompt, "seed": seed}
        emit(asked | _described(running), as_json=True, text="")
    else:
        _print_samples(running, color)


def _check_together(*, interactive: bool, as_json: bool, color: bool, samples: int, prompt: str) -> None:
    """Raise UsageError for options that do not go together."""
    from headwater.errors import UsageError

    if interactive and (as_json or samples > 1 or prompt == "-"):
        raise UsageError(
            "--interactive does not go together with --json, --samples or --prompt -",
            repair="Leave one of them out",
        )
    if as_json and color:
        raise UsageError("--color does not go together with --json", repair="Leave one of them out")


def _standard_input() -> str:
    """All of stdin, without the newline that ends its last line."""
    from headwater.storage import decode_text

    text = decode_text(sys.stdin.buffer.read(), Path("stdin"))
    return text.removesuffix("\n").removesuffix("\r")


def _print_samples(running: list[Generation], color: bool) -> None:
    """The continuations one after the other, while all of them come."""
    for number, generation in enumerate(running, start=1):
        if len(running) > 1:
            before = "\n" if number > 1 else ""
            say(f"{before}sample {number} of {len(running)}:")
        _print_streamed(generation, color)
        print(flush=True)
        if generation.request.stop and generation.finished == "length":
            say(f"No stop text came: ended after {counted(len(generation.tokens), 'token')}.")


def _print_streamed(generation: Generation, color: bool) -> None:
    terminal = sys.stdout.isatty()
    for event in generation:
        if event.text:
            # A model of bytes can write what a terminal takes for a command.
            shown = event._replace(text=event.text.translate(_CONTROLS)) if terminal else event
            print(_tinted(shown) if color else shown.text, end="", flush=True)


def _tinted(event: Event) -> str:
    """The text of one event in the colour of its token's probability, a step for every factor of four."""
    if event.alternatives is None:
        return event.text
    step = math.floor(-event.alternatives.log_probability / math.log(4))
    tint = _TINTS[max(0, len(_TINTS) - 1 - step)]
    # A colour that spans a line break paints the rest of the line on some terminals.
    return "\n".join(f"\x1b[38;5;{tint}m{line}\x1b[0m" if line else "" for line in event.text.split("\n"))


def _described(running: list[Generation]) -> dict[str, Any]:
    """The continuations once they are done, and what the prompt took."""
    return {
        "prompt_tokens": len(running[0].request.prompt),
        "samples": [_sample(generation) for generation in running],
    }


def _sample(generation: Generation) -> dict[str, Any]:
    log_probabilities = [event.alternatives.log_probability for event in generation if event.alternatives]
    return {
        "sample": generation.request.sample,
        "text": generation.text,
        "tokens": generation.tokens,
        "log_probabilities": [round(value, 6) for value in log_probabilities],
        "finished": generation.finished,
    }


def _behind(text: str, line: str) -> str:
    """A line as it goes on behind the text so far: with a space before a word, unless something stands open."""
    apart = not text or text[-1].isspace() or text[-1] in "([{“‘" or not line[:1].isalnum()
    return line if apart else f" {line}"


def _converse(lm: LanguageModel, text: str, options: dict[str, Any], color: bool) -> None:
    """Each line typed is put behind all text so far and continued; an empty one just goes on."""
    say(f"{lm!r}, {lm.engine.runner.name}, seed {options['seed']}")
    say("Type a text and it goes on; an empty line goes on from there; Ctrl-C stops a text, Ctrl-D ends.")
    ids = lm.tokenizer.encode(text) if text else []
    turn = 0
    while True:
        try:
            line = input("> ")
        except EOFError:
            say("")
            return
        ids += lm.tokenizer.encode(_behind(lm.tokenizer.decode(ids), line))
        # Each turn draws other numbers, and the same turns give the same text.
        request = lm.request(ids or lm.prompt_ids(""), **options, sample=turn)
        generation = lm.engine.submit(request)
        try:
            _print_streamed(generation, color)
        except KeyboardInterrupt:
            generation.cancel()
        print(flush=True)
        end = lm.tokenizer.end_of_text
        ids += [token for token in generation.tokens if token != end]
        turn += 1
