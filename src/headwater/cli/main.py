"""The entry point: the commands, and how errors are shown.

Exit status: 0 done, 1 failed, 2 wrong use (`errors` says which error is which), 130 interrupted. An error of the
user or of the operating system is one paragraph; `--debug` shows the traceback. Command modules are imported only
when their command is called, so that `--help` stays fast.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import select
import signal
import sys
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headwater.cli.console import stop_progress
from headwater.cli.process import prepare
from headwater.display import printable
from headwater.errors import HeadwaterError, Interrupted, ResourceError, UsageError, suggest
from headwater.plugins import OPTIONAL, not_installed, plugins

# Typer carries its own copy of click in some versions and depends on click in others: reach the classes
# through Typer's public names, which are subclasses of them.
WrongUse: Any = typer.BadParameter.__mro__[1]

# Command -> one-line help, in the order of the flow. The module of this name has a group `app`, or a function
# with the name of the command. Other distributions add commands: see `plugins`.
COMMANDS = {
    "quickstart": "Train a model on local text and write a report, in minutes.",
    "corpus": "Gather text into a corpus, or inspect one.",
    "tokenizer": "Train a tokenizer, encode and decode with it, or compare two.",
    "pack": "Turn a corpus into the token stream that training reads.",
    "pretrain": "Train a language model on packed tokens.",
    "generate": "Continue a text.",
    "serve": "Serve a model: an OpenAI-compatible API and a page.",
    "evaluate": "Score a model zero-shot.",
    "finetune": "Fine-tune a model on labelled data.",
    "predict": "Label new rows with a fine-tuned model.",
    "convert": "Convert between OpenAI's, Hugging Face's and other model files.",
    "report": "Join runs and results into one HTML page.",
    "lineage": "Print what a folder was made from, back to its sources.",
    "doctor": "Print what this machine offers to Headwater.",
}

_NO_MEMORY = re.compile("can't allocate memory|out of memory")  # what PyTorch's allocators say
_NO_THREAD = "can't start new thread"


# Parameters of commands that are paths, or else URLs or names of models.
_PATHS = {
    *("model", "tokenizer", "init_from", "sources", "out", "dumps", "links", "corpus", "first", "second"),
    *("folder", "recipe"),
}


class _Stopped(Exception):
    """Ctrl-C with a message; Typer would keep only an exit status."""


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports a command's module when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the flow, then those of other distributions."""
        return list(COMMANDS | plugins())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the module of `cmd_name` and return its command."""
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"headwater.cli.{cmd_name}")
            function = getattr(module, "app", None) or getattr(module, cmd_name)
        elif cmd_name in plugins():
            function = plugins()[cmd_name].load()
        else:
            return None
        group = function
        if not isinstance(function, typer.Typer):
            group = typer.Typer(add_completion=False)
            group.command()(function)
        for info in group.registered_commands:
            if not hasattr(info.callback, "__wrapped__"):
                info.callback = _with_home(info.callback)
        command = get_command(group)
        command.name = cmd_name
        if ctx is not None:
            _hide_flag_types(command, ctx)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; raise UsageError for one that does not exist."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and args[0] not in plugins():
            if args[0] in OPTIONAL:
                raise not_installed(f"the command {args[0]}")
            raise UsageError(
                f"there is no command {args[0]!r}", **suggest(args[0], {*COMMANDS, *OPTIONAL, *plugins()})
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; only resumable work says that it can be resumed."""
        try:
            return super().invoke(ctx)
        except Interrupted:
            raise _Stopped("Interrupted. Run the same command again to resume.") from None
        except KeyboardInterrupt:
            raise _Stopped("Interrupted.") from None
        except BrokenPipeError as error:  # Typer would exit with status 1 and no message
            if not _is_stdout_broken():
                raise ResourceError(
                    "another process or machine closed its connection", repair="Run the same command again"
                ) from error
            return 0  # the reader closed the pipe, as `| head` does: this is not a failure

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the overview without importing any command."""
        print(overview())


def _with_home(function: Any) -> Any:
    """Return a command that expands `~` in its paths and names of models: a shell does not in `--out=~/run`."""

    @wraps(function)
    def command(**parameters: Any) -> Any:
        return function(**{name: _expanded(name, value) for name, value in parameters.items()})

    return command


def _expanded(name: str, value: Any) -> Any:
    from headwater.reading import expand_home

    if isinstance(value, list):
        return [_expanded(name, item) for item in value]
    return expand_home(value) if isinstance(value, Path) or (isinstance(value, str) and name in _PATHS) else value


def _hide_flag_types(command: Any, context: Any) -> None:
    """Leave out the type of options that take no value: Typer shows `<bool>` next to each of these."""
    for parameter in [*command.params, command.get_help_option(context)]:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _hide_flag_types(inner, context)


def overview() -> str:
    """Return the text of `headwater --help`."""
    texts = {name: plugin.summary for name, plugin in plugins().items()} | COMMANDS
    width = max(map(len, texts))
    lines = [f"  {name.ljust(width)}  {texts[name]}" for name in COMMANDS | plugins()]
    return (
        "Usage: headwater COMMAND [OPTIONS]\n\n"
        "GPT-1 and GPT-2 from raw text to a served model.\n\n"
        "Commands:\n" + "\n".join(lines) + "\n\n"
        "Options:\n"
        "  --version   Print the version.\n"
        "  --debug     Show tracebacks.\n\n"
        "Run `headwater COMMAND --help` for the options of a command. Start with: headwater quickstart"
    )


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(installed("headwater"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(overview())
        raise typer.Exit
    if debug:
        os.environ["HEADWATER_DEBUG"] = "1"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Without `arguments`, use those of the process and prepare it (see `process`); it must end afterwards.
    """
    is_own_process = arguments is None
    if arguments is None:
        prepare()
        arguments = sys.argv[1:]
    try:
        return _run(arguments)
    finally:
        if is_own_process:
            gc.freeze()  # collections while Python exits would visit all that torch and scikit-learn made
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while Python exits would print a traceback
        _discard_unread(sys.stdout)
        _discard_unread(sys.stderr)


def _run(arguments: list[str]) -> int:
    # `--debug` is also accepted after the command, where people add it after an error.
    if "--debug" in arguments:
        arguments = ["--debug", *(a for a in arguments if a != "--debug")]
    try:
        try:
            outcome: Any = get_command(app).main(arguments, prog_name="headwater", standalone_mode=False)
            with suppress(BrokenPipeError):
                print(end="", flush=True)  # here an error, such as a full disk, is still shown
        finally:
            stop_progress()
        return outcome if isinstance(outcome, int) else 0
    except HeadwaterError as error:
        return _fail(f"Error: {error}", error.exit_status)
    except typer.Exit as leave:
        return leave.exit_code
    except WrongUse as error:
        if not error.format_message().strip(". "):  # a group without a command: its help was printed
            return 2
        where = error.ctx.command_path if error.ctx else "headwater"
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        message += "" if message.endswith("?") else "."
        return _fail(f"Error: {message} See: {where} --help", 2)
    except _Stopped as stopped:
        return _fail(f"\n{stopped}", 130)  # on a new line, after the output and ^C
    except (KeyboardInterrupt, typer.Abort):
        return _fail("\nInterrupted.", 130)
    except (MemoryError, RuntimeError) as error:
        if str(error) == _NO_THREAD:
            repair = "see ulimit -u and the limits of the container"
            return _fail(f"Error: the system starts no more threads for this user: {repair}.", 1)
        if isinstance(error, RuntimeError) and not _NO_MEMORY.search(str(error)):
            raise
        return _fail(
            "Error: the memory is too small for this command. Close other programs, or use smaller files or a "
            "smaller model; --debug shows where it ran out.",
            1,
        )
    except OSError as error:  # of the operating system, and no command handles it
        if error.strerror is None:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        return _fail(f"Error: {where}{error.strerror}.", 1)


def _is_stdout_broken() -> bool:
    """Return whether the reader of stdout has closed the pipe; True where the system cannot tell."""
    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_unread(stream: Any) -> None:
    """Discard what cannot be written to stdout or stderr: at exit, Python would change the status to 120."""
    try:
        if stream is not None:  # it was closed when the process started
            stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, status: int) -> int:
    if os.environ.get("HEADWATER_DEBUG") and sys.exc_info()[0]:
        raise  # the exception being handled, with its traceback
    with suppress(BrokenPipeError):
        print(printable(message, keep="\n\t"), file=sys.stderr, flush=True)
    return status
