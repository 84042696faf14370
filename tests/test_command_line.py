"""What holds for every command: help without torch, exit statuses, errors without tracebacks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from headwater import config
from headwater.cli import console
from headwater.cli.main import COMMANDS, LazyGroup, main
from headwater.errors import UsageError
from headwater.reading import expand_home
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer


def test_a_group_without_its_command_prints_its_help_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus"]) == 2
    out, err = capfd.readouterr()
    assert (out + err).count("Usage:") == 1
    assert "Error" not in out + err


def test_help_imports_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "pyarrow", "tokenizers", "transformers", "rich", "pydantic"]
    code = (
        "import sys; from headwater.cli.main import main; status = main(['--help']); "
        f"sys.exit(status or ' '.join(name for name in {heavy} if name in sys.modules) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for name in COMMANDS:
        assert f"  {name} " in result.stdout


def test_a_limit_is_as_large_as_a_configuration_allows() -> None:
    assert console.MOST_ROWS == config.MOST_ROWS


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_a_manual_and_imports_no_torch_for_it(name: str) -> None:
    code = (
        f"import sys; from headwater.cli.main import main; status = main([{name!r}, '--help']); "
        "sys.exit(status or ('torch' in sys.modules and 'torch was imported'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Usage: " in result.stdout
    assert "<bool>" not in result.stdout  # a flag takes no value


@pytest.mark.parametrize(
    "arguments",
    [
        "predict --model clf nope.csv --out x.csv",
        "predict --model clf rows.csv --out x.xlsx",
        "finetune --task classify --train nope.csv --out m",
        "finetune --task classify --train rows.csv --epochs 0 --out m",
        "generate --model nope",
        "generate --precision fp8",
    ],
)
def test_an_error_that_needs_no_model_imports_no_torch(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    code = (
        "import sys; from headwater.cli.main import main; status = main(sys.argv[1:]); "
        "sys.exit(3 if 'torch' in sys.modules else status)"
    )
    command = [sys.executable, "-c", code, *arguments.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert result.returncode in {1, 2}, result.stderr
    assert result.stderr.startswith("Error: ")


def test_the_help_of_an_inner_command_shows_no_type_of_a_flag(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "build", "--help"]) == 0
    shown = capfd.readouterr().out
    assert "--json" in shown
    assert "<bool>" not in shown


WRONG_USE = """
pretrain --no-such-option
pretrain --out run --set stepz=3
pretrain bad.toml --tokens nowhere --out run
quickstart --minutes 0 --out q
quickstart --minutes inf --out q
corpus build python-docs --recipe nowhere.toml --out out
pack nowhere --tokenizer gpt2 --validation 2 --out out
evaluate --model gpt2-mini --tasks nowhere.toml --data . --out out
finetune --train nowhere.csv --out out
generate one --prompt two
serve --host 0.0.0.0
doctor --no-such-option
"""
FAILURES = """
quickstart nowhere.txt --out q
corpus build empty.txt --out out
corpus stats nowhere
tokenizer train nowhere.txt --out out
tokenizer compare gpt2-mini gpt2-mini nowhere.txt
pack nowhere --tokenizer gpt2 --out out
pretrain --preset gpt2-pico --tokens nowhere --out run
generate hi --model nowhere
serve --model nowhere
serve --api-key-file empty.txt
evaluate --model gpt2-mini --tasks heldout --data nowhere --out out
evaluate --compare nowhere nowhere
finetune --task classify --train nowhere.csv --out out
predict nowhere.csv --model gpt2-mini --out out.csv
convert nowhere out
report nowhere --out out.html
lineage nowhere
"""


@pytest.mark.parametrize(
    ("line", "status"),
    [(line, status) for status, lines in ((2, WRONG_USE), (1, FAILURES)) for line in lines.strip().splitlines()],
)
def test_exit_status_of_a_wrong_command_and_of_a_wrong_file(
    line: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bad.toml").write_text("steps = [")
    assert main(line.split()) == status
    errors = capfd.readouterr().err
    assert "Error: " in errors
    assert "Traceback" not in errors
    assert {path.name for path in tmp_path.iterdir()} == {"empty.txt", "bad.toml"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pretrian"], "there is no command 'pretrian'. Did you mean 'pretrain'?"),
        (
            ["pretrain", "--out", "run", "--set", "stepz=3"],
            "--set has the unknown key 'stepz'. Did you mean 'steps'?",
        ),
        (["corpus", "biuld"], "No such command 'biuld'. Did you mean 'build'? See: headwater corpus --help"),
        (["reproduce", "nope"], "there is no experiment 'nope'; expected all, gpt1_"),
        (["reproduce", "gpt1", "--scale", "minni"], "there is no scale 'minni'; expected mini, small, paper"),
        (["pretrain", "--out", "run", "--preset", "nope"], "there is no preset 'nope'; expected gpt1, gpt2-small"),
        (
            ["finetune", "--model", "gpt2-mini", "--task", "nope"],
            "Invalid value for '--task': 'nope' is not one of 'classify'",
        ),
    ],
)
def test_an_unknown_name_is_the_first_error(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_DATA")
    assert main(arguments) == 2
    assert capfd.readouterr().err.startswith(f"Error: {said}")


def test_what_the_system_refuses_is_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["corpus", "build", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out")]
    if Path("/proc/self/mem").exists():  # a file that exists and cannot be read, not even by root
        (tmp_path / "a.txt").symlink_to("/proc/self/mem")
        assert main(command) == 1
        assert "a.txt cannot be read: Input/output error. Check the disk" in capfd.readouterr().err

    def refused(*unused: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/root/secret")

    monkeypatch.setattr("headwater.corpus.build_corpus", refused)
    assert main(command) == 1
    assert capfd.readouterr().err == "Error: /root/secret: Permission denied.\n"


PIPE_CASES = {
    "unread results": ("out", ["--version"], 0),
    "unread progress": ("err", ["tokenizer", "train", "a.txt", "--vocab-size", "260", "--out", "made"], 0),
    "an unread error": ("err", ["lineage", "nowhere"], 1),
    "unread wrong use": ("out err", ["lineage", "--nope"], 2),
    "an error of a command with unread results": (
        "out err",
        ["pack", "a.txt", "--tokenizer", "a", "--out", "b"],
        1,
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe has an error of its own on POSIX only")
@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("case", PIPE_CASES)
def test_a_closed_pipe_is_not_a_failure_and_hides_none(tmp_path: Path, case: str, buffered: str) -> None:
    streams, arguments, status = PIPE_CASES[case]
    (tmp_path / "a.txt").write_text("the river runs " * 99)
    unread, closed = os.pipe()
    os.close(unread)
    result = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        stdout=closed if "out" in streams else subprocess.PIPE,
        stderr=closed if "err" in streams else subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": buffered},
        text=True,
    )
    os.close(closed)
    assert result.returncode == status
    assert not result.stderr, "Python has nothing to say at exit"
    assert (tmp_path / "made").exists() == ("made" in arguments)


def test_a_connection_that_breaks_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    app = typer.Typer()
    app.command()(broken)
    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: get_command(app))
    assert main(["doctor"]) == 1
    assert "closed its connection" in capfd.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_written_are_a_failure() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "headwater", "--version"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "Error: No space left on device.\n")


def test_debug_shows_the_traceback_in_any_position(tmp_path: Path) -> None:
    arguments = ["lineage", str(tmp_path / "nowhere"), "--debug"]
    environment = {k: v for k, v in os.environ.items() if k != "HEADWATER_DEBUG"}
    result = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_json_is_one_object_on_stdout(tokens: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(tokens), "--json"]) == 0
    chain = json.loads(capfd.readouterr().out)
    assert chain["kind"] == "tokens"
    assert {entry["kind"] for entry in chain["inputs"]} == {"corpus", "tokenizer"}


def test_import_needs_no_heavy_package() -> None:
    code = "import sys, headwater; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "The river"],
        ["serve", "--port=0"],
        ["predict", "rows.csv", "--model=m", "--out=p.csv"],
        ["evaluate", "--model=gpt2-mini", "--tasks=heldout", "--data=.", "--out=results"],
        ["finetune", "--model=gpt2-mini", "--task=classify", "--train=rows.csv", "--out=tuned"],
        ["reproduce", "gpt1_perplexity", "--data=."],
        ["pretrain", "--tokens=tokens", "--out=run"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_device_that_is_not_there_is_named(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    assert main([*arguments, "--device", "quantum"]) == 2
    assert "device 'quantum' cannot be used" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_tilde_is_the_home_folder_in_every_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell leaves it in `--out=~/run`, and a folder named `~` was made."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    text = tmp_path / "home" / "text.txt"
    text.parent.mkdir()
    text.write_text("The river runs to the sea. " * 40)
    assert main(["corpus", "build", "~/text.txt", "--out=~/corpus"]) == 0
    assert main(["tokenizer", "train", "~/corpus", "--vocab-size=300", "--out=~/tokenizer"]) == 0
    capsys.readouterr()
    assert main(["tokenizer", "encode", "~/x", "--tokenizer=~/tokenizer", "--json"]) == 0
    ids = json.loads(capsys.readouterr().out)["ids"]
    tokenizer = Tokenizer.load("~/tokenizer")
    assert tokenizer.decode(ids) == "~/x", "a text stays as it is"
    tokenizer.save("~/again")
    assert Tokenizer.load(text.parent / "again").identity == tokenizer.identity
    with pytest.raises(UsageError, match="would be a folder named ~"):
        Stage(Path("~/run"), kind="run", config={}, inputs={})
    assert list(Path().iterdir()) == []
    assert expand_home("rivers=~/run") == f"rivers={tmp_path / 'home'}/run"
    assert expand_home("a~/b") == "a~/b"


@pytest.mark.parametrize("out", [".", ""])
@pytest.mark.parametrize(
    "command", ["pack {tokens}/../corpus --tokenizer gpt2-mini", "corpus build {tokens}/../text.txt"]
)
def test_the_current_folder_is_no_output(
    command: str, out: str, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command.format(tokens=tokens).split(), "--out", out]) == 1
    assert "is the current folder, which cannot be replaced" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in containers whose user id has no name."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(Path, "expanduser", lambda _: no_home())
    for variable in ("HEADWATER_CACHE", "XDG_CACHE_HOME", "HEADWATER_DATA"):
        monkeypatch.delenv(variable, raising=False)
    assert main(["doctor"]) == 0
    for name in ("gpt2", "minilm"):
        assert main(["tokenizer", "encode", "a text", "--tokenizer", name]) == 1
    assert main(["lineage", "~/run"]) == 2
    assert "this process has no home folder. Set HOME" in capsys.readouterr().err


def test_a_limit_on_threads_is_not_called_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("headwater.cli.doctor.emit", refuse)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err.startswith("Error: the system starts no more threads")
