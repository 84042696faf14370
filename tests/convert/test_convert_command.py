"""`headwater convert`: what the source is, its files say; folders carry their lineage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwater.cli.main import main
from headwater.convert import openai
from headwater.model import build_model, load_config, load_model, preset, save_model
from headwater.storage import provenance
from headwater.tokenizer import Tokenizer


def test_the_golden_releases_become_model_folders_with_lineage(
    golden_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "_HEAD_WIDTH", 4)  # of the small GPT-1
    for kind in ("gpt1", "gpt2"):
        source, out = golden_data / "golden" / f"{kind}-release-toy", tmp_path / kind
        assert main(["convert", str(source), str(out), "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["source"], result["tokenizer"]) == (f"openai-{kind}", kind)
        manifest = provenance.open_folder(out, "model")
        assert [entry.role for entry in manifest.inputs] == ["weights"]
        assert Tokenizer.load(out).identity == Tokenizer.load(kind).identity
        # OpenAI's rate of fine-tuning and end of a text: GPT-2's <|endoftext|>; GPT-1 has none.
        config, ends = load_config(out), Tokenizer.load(out).roles.ends
        assert (config.is_foreign, config.transfer_rate) == (True, 6.25e-5)
        assert ends == ((50_256,) if kind == "gpt2" else ())
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        assert main(["convert", str(source), str(out)]) == 0
        assert before == {path.name: path.read_bytes() for path in out.iterdir()}
        capsys.readouterr()


def test_a_hugging_face_folder_becomes_one_of_half_the_size(tmp_path: Path) -> None:
    model = build_model(preset("gpt2-pico", vocabulary=60), seed=1).eval()
    source = tmp_path / "source"
    source.mkdir()
    save_model(model, source)
    assert main(["convert", str(source), str(tmp_path / "half"), "--precision", "bf16"]) == 0
    half = load_model(tmp_path / "half")
    assert torch.equal(half.tokens.weight, model.tokens.weight.bfloat16().float())
    assert json.loads((tmp_path / "half/config.json").read_text())["dtype"] == "bfloat16"
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("source", "half")]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_name_of_a_file_does_not_become_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "gpt2-mini", str(tmp_path / "m.bin")]) == 2
    assert "m.bin is the name of a file; expected a folder to write" in capsys.readouterr().err
    assert not (tmp_path / "m.bin").exists()


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, other = (Tokenizer.train([text], vocab_size=262) for text in ("abcabcabc", "xyzxyzxyz"))
    for name in ("source", "other"):
        (tmp_path / name).mkdir()
    model = build_model(preset("gpt2-pico", vocabulary=own.vocabulary_size), seed=1)
    save_model(model, tmp_path / "source", tokenizer=own)
    other.save(tmp_path / "other")
    source, out = str(tmp_path / "source"), str(tmp_path / "out")
    assert main(["convert", source, out, "--tokenizer", str(tmp_path / "other")]) == 1
    assert "is not the one in" in capsys.readouterr().err
    assert main(["convert", source, out, "--tokenizer", source]) == 0
    inputs = provenance.open_folder(tmp_path / "out", "model").inputs
    assert [entry.role for entry in inputs] == ["weights", "tokenizer"]


def test_a_vocabulary_without_its_merges_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = Tokenizer.train(["abcabcabc"], vocab_size=262)
    (tmp_path / "source").mkdir()
    model = build_model(preset("gpt2-pico", vocabulary=own.vocabulary_size), seed=1)
    save_model(model, tmp_path / "source", tokenizer=own)
    for name in ("merges.txt", "tokenizer.json"):
        (tmp_path / "source" / name).unlink()
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "out")]) == 1
    assert "expected tokenizer.json, or vocab.json with merges.txt" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "arguments", "status", "message"),
    [
        ({}, [], 1, "is not a model that Headwater can read"),
        ({"config.json": "{}", "task.json": "{}"}, [], 2, "is a fine-tuned model, whose head would be lost"),
        ({"config.json": "{}"}, ["--precision", "int3"], 2, "is not written in int3; expected f32, bf16, f16"),
        ({"hparams.json": "{}"}, [], 1, "has n_vocab = 'None'"),
        ({"config.json": '{"model_type": "llama"}'}, [], 1, "'llama'"),
    ],
)
def test_wrong_use_is_one_readable_paragraph(
    files: dict[str, str],
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_text(content)
    assert main(["convert", str(source), str(tmp_path / "out"), *arguments]) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_what_a_conversion_leaves_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = build_model(preset("gpt2-pico", vocabulary=60), seed=1).eval()
    source = tmp_path / "source"
    source.mkdir()
    save_model(model, source)
    assert main(["convert", str(source), str(tmp_path / "plain"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == []
    tensors = load_file(source / "model.safetensors") | {"score.weight": torch.zeros(2, model.config.width)}
    save_file(tensors, source / "model.safetensors")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": 3}')
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0
    seen = "".join(capsys.readouterr())
    assert "Left out: chat_template.jinja, temperature of generation_config.json, score.weight" in seen
