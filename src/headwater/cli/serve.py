"""`headwater serve`: an OpenAI-compatible API and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import (
    ComputePrecision,
    Device,
    Download,
    ModelTokenizer,
    Settings,
    fetch_tokenizer,
    local_model,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.shipped import DEFAULT, split_name

KEYS = keys_option("headwater.serve:ServeConfig")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model folder, fine-tuned or not, a shipped model, a hub name, or NAME=any of these. Repeatable.",
            show_default=DEFAULT,
        ),
    ] = None,
    download: Download = False,
    tokenizer: ModelTokenizer = None,
    host: Annotated[str, typer.Option(help="Address to bind; an address other than loopback needs API keys.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65_535)] = 8000,
    api_key_file: Annotated[Path | None, typer.Option(help="File with one API key per line.")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin of a site whose pages may use the server, as https://my.org; * is any. Repeatable.",
            metavar="ORIGIN",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name of this machine, such as a proxy sends. Repeatable.", metavar="NAME"),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            help="Continuations of one model at the same time; others wait.",
            show_default="32, fewer with little memory",
            min=1,
        ),
    ] = None,
    precision: ComputePrecision = "auto",
    device: Device = "auto",
    log: Annotated[bool, typer.Option("--log", help="Print a line for each request on stderr.")] = False,
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
) -> None:
    """Serve models: an OpenAI-compatible API, and a page at / to generate text and inspect the models.

    --set changes the limits of a request, and any other key of --keys.
    Ctrl-C finishes the running requests and stops; a second Ctrl-C stops at once. SIGHUP opens the models again
    whose folders have changed. The file of keys is read again when it changes.
    """
    from headwater.cli.process import freeze_heap_and_set_switch_interval, return_memory
    from headwater.config import Layer, parse_settings
    from headwater.serve import ServeConfig
    from headwater.serve import serve as run

    return_memory()
    options = {
        "models": model or [DEFAULT],
        "tokenizer": tokenizer,
        "host": host,
        "port": port,
        "api_key_file": api_key_file,
        "allow_hosts": allow_host or [],
        "allow_origins": allow_origin or [],
        "max_concurrency": max_concurrency,
        "precision": precision,
        "device": device,
        "log": log,
    }
    config = ServeConfig.build(options, Layer(parse_settings(settings or []), "--set"))
    for named in config.models:
        local_model(split_name(named)[1], download)  # after a download the name is found
    fetch_tokenizer(tokenizer, download)
    run(config, progress=terminal_progress(), ready=lambda _: freeze_heap_and_set_switch_interval())
