from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from headwater.cli.generate import _behind
from headwater.cli.main import main
from headwater.model import build_model, preset
from headwater.model.folder import save_model
from headwater.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    text = "the river runs to the sea. "
    tokenizer = Tokenizer.train([text], kind="gpt2", vocab_size=280, special_tokens=["<|endoftext|>"])
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64, init_deviation=0.1)
    folder = tmp_path_factory.mktemp("model")
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return str(folder)


def run(folder: str, *arguments: str) -> int:
    return main(["generate", "--model", folder, *arguments])


def test_text_goes_to_stdout_and_all_else_to_stderr(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "the river", "--max-tokens", "9", "--seed", "3", "--json") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert "fp32" in err
    assert len(result["samples"][0]["log_probabilities"]) == len(result["samples"][0]["tokens"])
    assert run(folder, "--prompt", "the river", "--max-tokens", "9", "--seed", "3") == 0
    assert capsys.readouterr().out == result["samples"][0]["text"] + "\n"


def test_standard_input_is_a_prompt(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the river\n")))
    assert run(folder, "--prompt", "-", "--max-tokens", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "the river"


def test_color_tints_the_same_text(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    options = ["--prompt", "the", "--max-tokens", "8", "--top-k", "5"]
    assert run(folder, *options) == 0
    plain = capsys.readouterr().out
    assert run(folder, *options, "--color") == 0
    tinted = capsys.readouterr().out
    assert tinted != plain
    assert re.sub(r"\x1b\[(38;5;\d+|0)m", "", tinted) == plain


def test_interactive_keeps_all_text_so_far(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the river\n\n"))
    assert run(folder, "--interactive", "--max-tokens", "30", "--min-tokens", "30", "--temperature", "0") == 0
    shown = capsys.readouterr().out
    greedy = ["--max-tokens", "60", "--min-tokens", "60", "--temperature", "0"]
    assert run(folder, "--prompt", "the river", *greedy) == 0
    whole = capsys.readouterr().out
    assert shown.replace("> ", "").replace("\n", "")[:50] == whole.replace("> ", "").replace("\n", "")[:50]


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("the river", "runs", " runs"),
        ("the river", " runs", " runs"),
        ("the river", ", deep", ", deep"),
        ("the river.", "It", " It"),
        ("the (", "deep", "deep"),
        ("the sea\n", "It", "It"),
        ("", "The", "The"),
        ("the", "", ""),
        ("강이", "흐른다", " 흐른다"),
    ],
)
def test_a_typed_line_does_not_grow_into_the_last_word(text: str, line: str, expected: str) -> None:
    assert _behind(text, line) == expected


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--prompt", "the", "--temperature", "-1"], 2, "temperature"),
        (["--prompt", "the", "--top-k", "1000"], 2, "top_k 1000"),
        (["--prompt", "the", "--max-tokens", "500"], 2, "--max-tokens 64"),
        (["--prompt", "the " * 90], 2, "context"),
        (["--interactive", "--json"], 2, "--interactive"),
        (["--prompt", "the", "--precision", "fp8"], 2, "fp8"),
    ],
)
def test_a_mistake_is_one_clear_line(
    folder: str, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, said: str
) -> None:
    assert run(folder, *arguments) == status
    out, err = capsys.readouterr()
    assert not out
    assert said in err.splitlines()[-1]
    assert len(err.splitlines()) == 1


def test_a_folder_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path), "--prompt", "a") == 1
    assert "config.json" in capsys.readouterr().err


def test_a_stop_text_that_never_comes_is_said(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "the", "--max-tokens", "4", "--min-tokens", "4", "--stop", "qqqq") == 0
    assert "No stop text came: ended after 4 tokens." in capsys.readouterr().err
