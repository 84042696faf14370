"""What every command shares: option types, output as text or JSON, progress on the terminal.

Results go to stdout, everything else (progress, notes, errors) to stderr, so that a pipe gets only the result.
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwater.display import duration, printable
from headwater.errors import UsageError
from headwater.storage import PlainProgress, Progress, say

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

# As `headwater.config.MOST_ROWS`, whose module takes longer to import than all of `headwater --help`.
MOST_ROWS = 1 << 53
# The option `--out`; a command that requires it gives it no default.
Out = Annotated[Path, typer.Option("--out", help="Folder to write.")]
ModelTokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", help="Tokenizer folder, gpt2 or gpt1, for a model folder without a tokenizer."),
]
DEVICE = typer.Option("--device", help="auto (a GPU if available), cpu, cuda, cuda:1 or mps.")
# The option `--device`.
Device = Annotated[str, DEVICE]
ComputePrecision = Annotated[
    Literal["auto", "fp32", "bf16", "int8"],
    typer.Option("--precision", help="fp32, bf16, int8 or auto (bf16 if it is faster for this model)."),
]
# The option `--seed`.
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.", min=0)]
# The option `--set`: any configuration key.
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set any configuration key (--keys lists them). Repeatable.", metavar="KEY=VALUE"),
]
# The option `--json`.
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]
Download = Annotated[
    bool,
    typer.Option("--download", help="Download the model or tokenizer if it is not on this machine."),
]
Encoding = Annotated[
    str,
    typer.Option(
        "--encoding",
        help="Encoding of text files and tables, such as cp949, utf-16 or cp1252.",
        show_default="detected",
    ),
]
NamedColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Name the column of a role, such as text=review. Roles: text, premise, hypothesis, context, "
        "question, label, and answers=first,second. Repeatable.",
        metavar="ROLE=COLUMN",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only the first N items.", min=1, max=MOST_ROWS)]


def emit(result: dict[str, Any], *, as_json: bool, text: str, exact: bool = False) -> None:
    """Print a command's result: the object with `--json`, else `text`, with control characters escaped.

    `exact` text is escaped only on a terminal, not in a pipe.
    """
    if as_json:
        text = json.dumps(result, ensure_ascii=False)
        # These characters occur only in JSON strings, where JSON has an escape for them.
        print(_BEYOND_JSON.sub(lambda character: f"\\u{ord(character[0]):04x}", text))
    elif exact and not sys.stdout.isatty():
        print(text)
    else:
        print(printable(text, keep="\n\t"))


_BEYOND_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def named_columns(options: list[str] | None) -> dict[str, str | list[str]]:
    """Return the columns by role; a column can have any name, and answers can be several columns."""
    columns: dict[str, str | list[str]] = {}
    for option in options or []:
        role, separator, column = option.partition("=")
        if not separator:
            raise UsageError(f"--column {option!r} has no '='", expected="for example --column text=review")
        columns[role] = [name.strip() for name in column.split(",")] if role == "answers" else column
    return columns


def require_file(path: Path) -> None:
    """Raise DataError if a file that a command will read is missing, before the seconds that torch takes."""
    from headwater.reading import file_error

    try:
        path.stat()
    except OSError as error:
        raise file_error(path, error) from None


def refuse_unused(context: typer.Context, subject: str, *parameters: str) -> None:
    """Raise UsageError if the command line sets one of these parameters, which `subject` does not use."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in parameters and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{subject} does not use {parameter.opts[0]}", repair="Leave it out")


def read_stdin() -> str:
    """Return all of stdin as text; raise DataError if it is not UTF-8."""
    from headwater.reading import decode_text

    return decode_text(sys.stdin.buffer.read(), Path("stdin"))


def warn_if_shadowed(model: str | Path) -> None:
    """Say which model is used: a local folder with the name of a shipped one, or a run's newest checkpoint."""
    from headwater import shipped

    if shipped.is_shadowed(model):
        say(f"{model} is the local folder, not the model of this name that ships with Headwater.")
    if Path(model).is_dir() and (checkpoint := shipped.find(model)).parent.name == "checkpoints":
        step = shipped.step_of(checkpoint.name)
        say(f"{model} is not finished: its newest checkpoint is used, of update {step:,}.")


def local_model(model: str | Path, download: bool) -> Path:
    """Return a path or a shipped model unchanged, and a hub name as the folder of its files.

    Raises FolderError if it does not exist; warns if a local folder has the name of a shipped model.
    """
    from headwater import shipped

    warn_if_shadowed(model)
    folder = shipped.resolve(str(model), download=download)
    return folder if shipped.is_hub_name(str(model)) else Path(model)


def fetch_tokenizer(name: str | None, download: bool) -> None:
    """Download the tokenizer of this name, if `download` allows it, so that the command finds it."""
    if name is not None and download:
        from headwater.tokenizer import Tokenizer

        Tokenizer.load(name, download=True)


def terminal_progress() -> Progress:
    """Return a live display on a terminal, plain lines elsewhere."""
    _made.append(LiveProgress() if sys.stderr.isatty() else PlainProgress())
    return _made[-1]


def stop_progress() -> None:
    """End every stage that still runs, so that an error starts on a line of its own, with a visible cursor."""
    while _made:
        _made.pop().stop()


_made: list[Progress] = []


class LiveProgress(PlainProgress):
    """One live line: stage, bar, step, loss, tokens/s and the time left."""

    _display: RichProgress | None = None

    def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
        """See Progress."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._close()
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
        with suppress(OSError):  # the terminal is gone; the work continues
            self._display.start()

    def advance(self, done: float, **figures: float) -> None:
        """See Progress."""
        if self._display is not None:
            parts = [f"{done:,.0f} {self._unit}".strip(), *self.figure_texts(figures)]
            self._display.update(self._task, completed=done, status=", ".join(parts))

    def finish(self, summary: str = "") -> None:
        """See Progress."""
        self._end("✓", summary or "done")

    def stop(self) -> None:
        """See Progress."""
        if self._display is not None:
            self._end("✗", "stopped")

    def _end(self, mark: str, summary: str) -> None:
        self._close()
        say(f"{mark} {self._stage}: {summary} ({duration(time.monotonic() - self._started)})")

    def _close(self) -> None:
        """Remove the display from the terminal."""
        display, self._display = self._display, None
        if display is not None:
            with suppress(OSError):
                display.stop()
