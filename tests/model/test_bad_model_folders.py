"""Each way in which a model folder can be wrong has one message that names it."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from headwater.convert import convert
from headwater.errors import DataError, FolderError, HeadwaterError, MismatchError
from headwater.model import build_model, load_model, preset, save_model
from headwater.model.io import huggingface
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

MATRIX = "transformer.h.0.mlp.c_fc.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(build_model(preset("gpt2-pico", vocabulary=20, width=8, context=6), seed=1), tmp_path)
    return tmp_path


def change_tensors(folder: Path, **changes: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name, change in changes.items():
        name = MATRIX if name == "matrix" else name
        if change is None:
            del tensors[name]
        else:
            tensors[name] = change(tensors.get(name))
    save_file(tensors, folder / "model.safetensors")


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder: Path) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        load_model(folder)
    return caught.value


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor[3, 5] = float("nan")
    return tensor


def test_no_folder_no_configuration_no_weights(folder: Path) -> None:
    assert "does not exist" in str(refusal(folder / "nothing"))
    assert "is a file" in str(refusal(folder / "config.json"))
    (folder / "model.safetensors").unlink()
    error = refusal(folder)
    assert isinstance(error, FolderError)
    assert "has no weights" in str(error)
    (folder / "config.json").unlink()
    assert "has no config.json" in str(refusal(folder))


def test_a_pickle_is_refused_under_any_name(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"a": 1}))
    assert "model.safetensors is cut short or damaged" in str(refusal(folder))
    (folder / "model.safetensors").unlink()
    (folder / "tf_model.h5").write_bytes(b"weights")
    assert "has no weights; expected model.safetensors or pytorch_model.bin" in str(refusal(folder))


@pytest.mark.parametrize("kept", [0, 4, 8, 40, -1, -500])
def test_a_truncated_file_is_named(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    error = refusal(folder)
    assert isinstance(error, FolderError)
    assert "model.safetensors is cut short or damaged" in str(error)


@pytest.mark.parametrize("where", [0, 9])
def test_an_altered_header_is_named(folder: Path, where: int) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[where] ^= 0x15
    path.write_bytes(content)
    assert "model.safetensors" in str(refusal(folder))


def test_bytes_after_the_tensors_are_noticed(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as handle:
        handle.write(b"more")
    assert "cut short or damaged" in str(refusal(folder))


def test_a_missing_and_an_unexpected_tensor_are_named(folder: Path) -> None:
    change_tensors(folder, extra=lambda _: torch.zeros(3))
    assert "have extra, which the model does not have" in str(refusal(folder))
    change_tensors(folder, extra=None, matrix=None)
    assert f"lack {MATRIX}" in str(refusal(folder))


def test_a_shape_that_is_not_the_configurations_is_named(folder: Path) -> None:
    change_config(folder, vocab_size=21)
    assert "transformer.wte.weight" in str(refusal(folder))
    assert "has shape (20, 8); expected (21, 8)" in str(refusal(folder))


def test_nan_and_infinity_are_named(folder: Path) -> None:
    change_tensors(folder, matrix=with_nan)
    error = refusal(folder)
    assert isinstance(error, DataError)
    assert f"{MATRIX} in" in str(error)
    assert "has NaN (1 of 256 values)" in str(error)
    change_tensors(folder, matrix=lambda m: torch.full_like(m, float("inf")))
    assert "has infinity (256 of 256 values)" in str(refusal(folder))


def test_large_finite_values_are_accepted(folder: Path) -> None:
    change_tensors(folder, matrix=lambda m: torch.full_like(m, 3e38))
    load_model(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "llama"}, "'llama'"),
        ({"model_type": None}, "model_type"),
        ({"activation_function": "prelu"}, "activation_function = 'prelu'"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"n_inner": 12}, "has shape (8, 32); expected (8, 12)"),
        ({"n_head": 3}, "not divisible"),
        ({"n_layer": "two"}, "layers"),
    ],
)
def test_an_architecture_that_is_not_ours_is_refused(folder: Path, changes: dict[str, Any], named: str) -> None:
    change_config(folder, **changes)
    assert named in str(refusal(folder))


@pytest.mark.parametrize(("key", "value"), [("hidden_act", ["gelu"]), ("hidden_size", None)])
def test_a_wrong_type_in_berts_configuration_is_refused(key: str, value: Any) -> None:
    content = huggingface.write_config(preset("bert-base"), "float32", {}) | {key: value}
    with pytest.raises(DataError, match=key.replace("hidden_size", "width")):
        huggingface.read_config(content, "config.json")


def test_an_adapter_is_refused_and_not_left_out(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "gpt2"}')
    assert "adapter of PEFT" in str(refusal(folder))
    (folder / "config.json").unlink()
    assert "adapter of PEFT" in str(refusal(folder))


def test_a_configuration_without_a_key_or_object_is_refused(folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    del content["n_embd"]
    (folder / "config.json").write_text(json.dumps(content))
    assert "n_embd" in str(refusal(folder))
    (folder / "config.json").write_text("[1]")
    assert "expected an object" in str(refusal(folder))
    (folder / "config.json").write_text("{")
    assert "damaged" in str(refusal(folder))


def test_an_output_matrix_of_its_own_is_refused(folder: Path) -> None:
    change_tensors(folder, **{"lm_head.weight": lambda _: torch.zeros(20, 8)})
    assert "lm_head.weight" in str(refusal(folder))


def test_an_index_that_names_an_absent_or_outside_file(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    for name in ("absent.safetensors", "../x.safetensors"):
        index = {"weight_map": {"a": name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert name in str(refusal(folder))


def test_a_folder_altered_since_headwater_wrote_it_is_named(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with Stage(out, kind="model", config={}, inputs={}).write() as work:
        save_model(build_model(preset("gpt2-pico", vocabulary=20), seed=1), work)
    load_model(out)
    path = out / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # a weight a little different: nothing but the hash can tell
    path.write_bytes(content)
    assert "was altered after it was written" in str(refusal(out))
    path.write_bytes(content[:-10])
    assert "model.safetensors has" in str(refusal(out))


def test_an_original_release_is_pointed_to_convert(tmp_path: Path) -> None:
    release = tmp_path / "of OpenAI"
    release.mkdir()
    (release / "params_shapes.json").write_text("[]")
    assert f"headwater convert '{release}' MODEL" in str(refusal(release))


def test_a_tokenizer_with_more_ids_than_rows_is_refused(tmp_path: Path) -> None:
    larger = Tokenizer.train(["a stone lies in the river"], kind="gpt2", vocab_size=260)
    model = build_model(preset("gpt2-pico", vocabulary=50), seed=1)
    with pytest.raises(MismatchError, match="ids and the model 50 rows"):
        save_model(model, tmp_path, tokenizer=larger)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"quantization_config": "4bit"}, "quantized weights (4bit)"),
        ({"quantization_config": True}, "quantized weights (True)"),
        ({"model_type": ["gpt2"]}, "describes a ['gpt2']"),
        ({"architectures": [5]}, ""),
        ({"architectures": 5}, ""),
        ({"architectures": [["GPT2LMHeadModel"]]}, ""),
    ],
)
def test_a_value_of_another_type_is_named_or_ignored(folder: Path, changes: dict[str, Any], named: str) -> None:
    change_config(folder, **changes)
    if named:
        assert named in str(refusal(folder))
    else:
        convert(folder, folder / "out")
        assert load_model(folder / "out").config == load_model(folder).config


def checkpoint(folder: Path, *, sharded: bool) -> Path:
    """A checkpoint of a training as its ranks write it, without a manifest."""
    state = {f"weight.{name}": value for name, value in load_model(folder).state_dict().items()}
    path = folder / "step"
    path.mkdir()
    (path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (path / "state.json").write_text("{}")
    if sharded:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.distributed.checkpoint.save(
                state, storage_writer=HuggingFaceStorageWriter(str(path)), no_dist=True
            )
    else:
        save_file(state, path / "state.safetensors")
    assert torch.equal(load_model(path).tokens.weight, load_model(folder).tokens.weight)
    return path


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("damage", ["nan", "cut", "lost", "shape"])
def test_damage_to_a_checkpoint_is_named(folder: Path, sharded: bool, damage: str) -> None:
    path = checkpoint(folder, sharded=sharded)
    (file,) = path.glob("*.safetensors")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "shape":
        change_config(path, n_positions=7)
    else:
        tensors = load_file(file)
        name = "weight.blocks.0.mlp.expand.weight"
        tensors = tensors | {name: with_nan(tensors[name])} if damage == "nan" else tensors
        kept = {key: value for key, value in tensors.items() if damage == "nan" or key != name}
        with safe_open(file, "pt") as handle:
            save_file(kept, file, handle.metadata())
    with pytest.raises(HeadwaterError, match={"nan": "NaN", "cut": "step"}.get(damage, "lacks|shape|shards")):
        load_model(path)
