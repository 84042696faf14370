"""`--keys` lists every key of `--set` with its meaning, and an error names where a wrong key was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.main import main

COMMANDS = {
    "pretrain": {"steps", "model.layers", "validation_windows"},
    "finetune": {"lambda_lm", "beta2", "columns.text"},
    "evaluate": {"yardstick_bytes"},
    "serve": {"body_bytes"},
    "reproduce": {"seeds"},
    "corpus build": {"text_field", "compose"},
    "corpus links": {"minimum_score"},
    "corpus fetch": {"delay"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_is_listed_with_a_meaning(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--keys"]) == 0
    listed = {line.split()[0]: line.split(maxsplit=2)[2] for line in capsys.readouterr().out.splitlines()}
    assert listed.keys() >= COMMANDS[command]
    assert not [key for key, meaning in listed.items() if meaning.startswith("(")]
    assert command != "finetune" or listed["batch_size"].startswith("Sequences per update")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["pretrain", "gpt2-nano", "--set", "stepz=3"],
            "--set has the unknown key 'stepz'. Did you mean 'steps'?",
        ),
        (["pretrain", "--set", "layers=1"], "--set has the unknown key 'layers'. Did you mean 'model.layers'?"),
        (["pretrain", "--set", "model.layerz=1"], "the unknown key 'model.layerz'. Did you mean 'model.layers'?"),
        (["pretrain", "--set", "model.steps=1"], "the unknown key 'model.steps'. Did you mean 'steps'?"),
        (
            ["finetune", "--model=m", "--task=classify", "--train=t", "--set", "columns.zzz=a"],
            "--set has the unknown key 'columns.zzz'; expected text, premise",
        ),
        (["pretrain", "wrong.toml", "--set", "steps=3"], "wrong.toml has the unknown key 'batch'"),
        (["pretrain", "gpt2-nano", "--set", "steps=-3"], "--set has steps = -3"),
        (["corpus", "build", "wrong.toml", "--recipe", "books", "--set", "similarity=3"], "--set has similarity"),
        (
            ["pretrain", "gpt2-nano", "--set", "track=trackio"],
            """track = 'trackio': Input should be a list, as ["a", "b"]. Correct track.""",
        ),
        (  # a shell removes the quotes of ["ko","en"]
            ["corpus", "build", "wrong.toml", "--recipe", "webtext", "--set", "languages=[ko,en]"],
            """languages = '[ko,en]': Input should be a list, as ["a", "b"]. Correct languages.""",
        ),
        (  # pydantic names the types that it tried
            ["finetune", "--model=m", "--task=classify", "--train=t", "--set", "learning_rate=x"],
            "--set has learning_rate = 'x': Input should be a valid number, unable to parse string as a number. "
            "Correct learning_rate.",
        ),
    ],
)
def test_an_error_names_where_the_key_was_given(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text("batch = 4\n")
    assert main([*arguments, "--out", "out"]) == 2
    assert said in capsys.readouterr().err
