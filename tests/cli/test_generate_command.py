from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import headwater
from headwater.cli.main import main
from headwater.model import build_model, load_model, preset, save_model
from headwater.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def _no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


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


def test_text_that_the_model_cannot_read_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = Tokenizer.train(["the river runs to the sea."], kind="gpt1", vocab_size=60)
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=64)
    save_model(build_model(config, seed=1), tmp_path, tokenizer=tokenizer)
    assert run(str(tmp_path), "the 강물", "--max-tokens", "1") == 0
    assert "Text without a token of its own: <unk> is 2 of 3 tokens" in capsys.readouterr().err


def test_more_samples_than_fit_the_memory_are_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--samples", str(10**9)) == 2
    assert "less than or equal to 100000" in capsys.readouterr().err


def test_text_goes_to_stdout_and_all_else_to_stderr(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "the river", "--max-tokens", "9", "--seed", "3", "--json") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert "fp32" in err
    assert len(result["samples"][0]["log_probabilities"]) == len(result["samples"][0]["tokens"])
    assert run(folder, "--prompt", "the river", "--max-tokens", "9", "--seed", "3") == 0
    assert capsys.readouterr().out == "the river" + result["samples"][0]["text"] + "\n"


@pytest.mark.parametrize("arguments", [["--prompt", "-"], ["-"], [], ["the river"], ["--prompt", "the river"]])
def test_the_prompt_is_an_argument_an_option_or_a_pipe(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the river\n")))
    assert run(folder, *arguments, "--max-tokens", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "the river"


def test_control_and_direction_characters_are_escaped_on_screen(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, options = "a\x1b[2J\u202eb\tc", ["--max-tokens", "3", "--seed", "1"]
    assert run(folder, prompt, *options) == 0
    assert capsys.readouterr().out.startswith(prompt)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(folder, prompt, *options) == 0
    assert capsys.readouterr().out.startswith("a\\x1b[2J\\u202eb\tc")


def test_each_call_takes_a_new_seed_and_prints_it(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "the", "--max-tokens", "5", "--json") == 0
    first = capsys.readouterr()
    assert run(folder, "the", "--max-tokens", "5", "--json") == 0
    second = json.loads(capsys.readouterr().out)
    seed = json.loads(first.out)["seed"]
    assert f"seed {seed}" in first.err
    assert seed != second["seed"]
    assert run(folder, "the", "--max-tokens", "5", "--seed", str(seed), "--json") == 0
    assert json.loads(capsys.readouterr().out)["samples"] == json.loads(first.out)["samples"]


def test_the_defaults_are_temperature_0_8_and_top_k_40(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["the river", "--max-tokens", "30", "--min-tokens", "30", "--seed", "1", "--json"]
    texts = []
    for more in ([], ["--temperature", "0.8", "--top-k", "40"], ["--temperature", "1", "--top-k", "0"]):
        assert run(folder, *options, *more) == 0
        texts.append(json.loads(capsys.readouterr().out)["samples"][0]["text"])
    lm = headwater.load(folder, precision="auto")
    assert texts[0] == texts[1] == lm.generate("the river", max_tokens=30, min_tokens=30, seed=1)
    assert texts[2] != texts[0]


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        ("the river", ["--max-tokens", "90", "--min-tokens", "90"], "its older half is dropped"),
        ("the " * 90, ["--max-tokens", "3"], "the model sees only its end"),
    ],
)
def test_a_text_beyond_the_context_is_written_with_a_note(
    folder: str, capsys: pytest.CaptureFixture[str], prompt: str, options: list[str], said: str
) -> None:
    assert run(folder, prompt, *options) == 0
    out, err = capsys.readouterr()
    assert out.startswith(prompt)
    assert said in err


def test_a_model_without_a_tokenizer_uses_the_named_one(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(load_model(Path(folder)), tmp_path)
    assert run(str(tmp_path), "the", "--max-tokens", "5", "--seed", "1") == 1
    assert "--tokenizer DIR" in capsys.readouterr().err
    assert run(str(tmp_path), "the", "--max-tokens", "5", "--seed", "1", "--tokenizer", folder) == 0
    assert capsys.readouterr().out.startswith("the")


def test_a_run_folder_means_the_model_in_it(tmp_path: Path, folder: str) -> None:
    (tmp_path / "run").mkdir()
    Path(tmp_path / "run/model").symlink_to(folder)
    assert run(str(tmp_path / "run"), "the", "--max-tokens", "2") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--prompt", "the", "--temperature", "-1"], 2, "temperature"),
        (["the", "--prompt", "a"], 2, "given twice"),
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


@pytest.mark.parametrize("option", ["--temperature", "--top-p", "--repetition-penalty"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400", ""])
def test_a_number_that_is_none_names_its_option(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is not opened for it: its folder is empty."""
    assert main(["generate", "a", "--model", str(tmp_path), f"{option}={value}"]) == 2
    said = capsys.readouterr().err
    assert f"Error: {option} is " in said or f"Invalid value for '{option}'" in said


def test_more_least_tokens_than_most_name_both_options(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "a", "--min-tokens", "9", "--max-tokens", "2") == 2
    assert "Error: min_tokens 9 is more than max_tokens 2." in capsys.readouterr().err


def test_a_folder_that_is_not_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path), "--prompt", "a") == 1
    assert "config.json" in capsys.readouterr().err


def test_a_stop_text_that_never_occurs_is_reported(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "the", "--max-tokens", "4", "--min-tokens", "4", "--stop", "qqqq") == 0
    assert "No stop text occurred: stopped after 4 tokens." in capsys.readouterr().err
