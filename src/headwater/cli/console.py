"""What every command shares: option types, output as text or JSON, progress on the terminal.

Results go to stdout, everything else (progress, notes, errors) to stderr, so that `--json` is one object
and a pipe gets only what was asked for.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import duration, printable
from headwater.storage.progress import PlainProgress, Progress, figure_texts

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

# Spelled the same in every command (an option that a command requires is used without a default).
Out = Annotated[Path, typer.Option("--out", help="Folder to write.", show_default=False)]
ModelTokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="Tokenizer folder, gpt2 or gpt1, where the model's folder has none.",
        show_default=False,
    ),
]
DEVICE = typer.Option("--device", help="auto (a GPU where there is one), cpu, cuda, cuda:1 or mps.")
Device = Annotated[str, DEVICE]
Seed = Annotated[int, typer.Option("--seed", help="Every random choice comes from it.", min=0)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set any configuration key (--keys lists them). Repeatable.", metavar="KEY=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch a model of the Hugging Face hub that is not on this machine.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only the first N items.", min=1)]


def emit(result: dict[str, Any], *, as_json: bool, text: str, exact: bool = False) -> None:
    """Print a command's result: the object with `--json`, else `text`, with control characters escaped.

    `exact` text is escaped on a terminal only: a pipe gets what it is.
    """
    if as_json:
        text = json.dumps(result, ensure_ascii=False)
        # JSON has an escape of its own for what it leaves as it is, and only in strings.
        print(_BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    elif exact and not sys.stdout.isatty():
        print(text)
    else:
        print(printable(text, keep="\n\t"))


_BEYOND_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def say(text: str) -> None:
    """One line for the person at the terminal, on stderr, with control characters escaped."""
    print(printable(text, keep="\n\t"), file=sys.stderr, flush=True)


def tell_apart(model: str | Path) -> None:
    """Say so where a folder here has the name of a model that ships: it is the folder that is taken."""
    from headwater import shipped

    if shipped.is_shadowed(model):
        say(f"{model} is the folder here, not the model that ships under this name.")


def local_model(model: str | Path, download: bool) -> Path:
    """Return a model as it was named, where it is here or ships; for a hub name, the folder of its files.

    Raises ResourceError for a hub name that is not on this machine and not to be downloaded.
    """
    from headwater.model.io.hub import from_hub, is_hub_name

    tell_apart(model)
    return from_hub(str(model), download) if is_hub_name(str(model)) else Path(model)


def terminal_progress() -> Progress:
    """A live display on a terminal, plain lines elsewhere."""
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()


def give_terminal_back() -> None:
    """End every live display, as when a stage failed: the cursor would stay hidden and the bar below the error."""
    for progress in list(_shown):
        progress.close()


class LiveProgress(Progress):
    """One live line: stage, bar, step, loss, tokens/s and the time left."""

    def __init__(self) -> None:
        self._display: RichProgress | None = None

    def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
        """See Progress."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.close()
        self._stage, self._unit = stage, unit
        self._started = time.monotonic()
        self._display = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID = self._display.add_task(stage, total=total, status="")
        self._display.start()
        _shown.add(self)

    def advance(self, done: float, **figures: float) -> None:
        """See Progress."""
        if self._display is not None:
            status = ", ".join([f"{done:,.0f} {self._unit}".strip(), *figure_texts(figures)])
            self._display.update(self._task, completed=done, status=status)

    def note(self, text: str) -> None:
        """See Progress."""
        if self._display is not None:
            self._display.console.print(f"  {printable(text)}", markup=False, highlight=False)
        else:
            say(f"  {text}")

    def finish(self, summary: str = "") -> None:
        """See Progress."""
        self.close()
        took = duration(time.monotonic() - self._started)
        say(f"✓ {self._stage}: {summary or 'done'} ({took})")

    def close(self) -> None:
        """Give the terminal back."""
        if self._display is not None:
            self._display.stop()
            self._display = None
        _shown.discard(self)


_shown: set[LiveProgress] = set()  # those whose display is on the terminal
