"""Weight files of other programs give transformers' logits; one that needs more than data is refused."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwater.convert import convert
from headwater.errors import DataError, FolderError
from headwater.model import load_model
from headwater.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

GPT2 = {"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 24, "initializer_range": 0.2}
IDS = torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch.manual_seed(4)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)).eval()


def expected(theirs: Any) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = theirs(IDS).logits
    return logits


def difference(theirs: Any, path: Path) -> float:
    with torch.inference_mode():
        return float((load_model(path)(IDS) - expected(theirs)).abs().max())


def renamed(folder: Path, rename: Callable[[str], str]) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({rename(name): tensor for name, tensor in tensors.items()}, folder / "model.safetensors")


@pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
def test_the_tensors_of_a_file_share_one_mapping(theirs: Any, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum(line.endswith(str(tmp_path / "model.safetensors")) for line in maps) == 1
    assert (model(IDS) - expected(theirs)).abs().max() <= 1e-4


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before-1.6"])
def test_a_bin_file_whole_or_in_shards_opens(theirs: Any, shards: int, legacy: bool, tmp_path: Path) -> None:
    theirs.config.save_pretrained(tmp_path)
    names = sorted(theirs.state_dict())
    index: dict[str, str] = {}
    for shard in range(shards):
        file = "pytorch_model.bin" if shards == 1 else f"pytorch_model-{shard}.bin"
        part = {name: theirs.state_dict()[name] for name in names[shard::shards]}
        torch.save(part, tmp_path / file, _use_new_zipfile_serialization=not legacy)
        index |= dict.fromkeys(part, file)
    if shards > 1:
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert difference(theirs, tmp_path) <= 1e-4


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod.", "model.", "_orig_mod.module."])
def test_prefixes_of_wrappers_are_not_part_of_a_name(theirs: Any, prefix: str, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    renamed(tmp_path, lambda name: prefix + name)
    assert difference(theirs, tmp_path) <= 1e-4
    renamed(tmp_path, lambda name: name.replace("transformer.", ""))
    assert difference(theirs, tmp_path) <= 1e-4


@pytest.mark.parametrize("bias", [True, False])
def test_a_checkpoint_of_nanogpt_opens(bias: bool, tmp_path: Path) -> None:
    torch.manual_seed(6)
    config = transformers.GPT2Config(**GPT2, activation_function="gelu")
    theirs = transformers.GPT2LMHeadModel(config).eval()
    weights = {}
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if name.endswith(".bias"):
                value.copy_(torch.randn_like(value) if bias else torch.zeros_like(value))
            if bias or not name.endswith(".bias"):
                linear = any(part in name for part in ("c_attn.weight", "c_proj.weight", "c_fc.weight"))
                weights[f"_orig_mod.{name}"] = value.t().contiguous() if linear else value
    arguments = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 24, "vocab_size": 300, "bias": bias}
    state = {"model": weights, "model_args": arguments, "optimizer": {}, "iter_num": 5, "config": {"eval": True}}
    torch.save(state, tmp_path / "ckpt.pt")
    assert difference(theirs, tmp_path / "ckpt.pt") <= 1e-4
    scalar = {"_orig_mod.transformer.ln_f.weight": torch.tensor(1.0)}
    own = {"_orig_mod.lm_head.weight": 2 * theirs.lm_head.weight.detach()}
    for name, changed in (("scalar", scalar), ("untied", own)):
        torch.save(state | {"model": weights | changed}, tmp_path / f"{name}.pt")
    with pytest.raises(DataError, match=r"final_norm\.weight"):
        load_model(tmp_path / "scalar.pt")
    lacking = {name: value for name, value in weights.items() if "ln_1.weight" not in name}
    torch.save(state | {"model": lacking}, tmp_path / "lacking.pt")
    with pytest.raises(DataError, match=r"lacks transformer\.h\.0\.ln_1\.(weight|bias)"):
        load_model(tmp_path / "lacking.pt")
    untied = load_model(tmp_path / "untied.pt").eval()
    with torch.inference_mode():
        assert (untied(IDS) - 2 * expected(theirs)).abs().max() <= 2e-4
    characters = {chr(0x4E00 + number): number for number in range(300)}
    meta = {"vocab_size": 300, "stoi": characters, "itos": {number: c for c, number in characters.items()}}
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(meta))
    for number, source in enumerate((tmp_path / "ckpt.pt", tmp_path)):
        result = convert(source, tmp_path / str(number))
        assert (result["tokenizer"], result["left_out"]) == ("foreign", ["the optimizer's state"])
        assert Tokenizer.load(tmp_path / str(number)).encode("\u4e05\u4e00") == [5, 0]
    convert(tmp_path, tmp_path / "converted")
    assert difference(theirs, tmp_path / "converted") <= 1e-4
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "converted").eval()
    with torch.inference_mode():
        assert (again(IDS).logits - expected(theirs)).abs().max() <= 1e-4


class Opened:
    def __reduce__(self) -> Any:
        return (print, ("this file ran code",))


def test_a_file_that_needs_more_than_data_is_refused(theirs: Any, tmp_path: Path, capsys: Any) -> None:
    theirs.config.save_pretrained(tmp_path)
    file = tmp_path / "pytorch_model.bin"
    torch.save({"weights": Opened()}, file)
    with pytest.raises(FolderError, match=r"more than weights: it needs .*print"):
        load_model(tmp_path)
    file.write_bytes(pickle.dumps(Opened()))
    with pytest.raises(FolderError, match=r"pytorch_model.bin"):
        load_model(tmp_path)
    torch.save(theirs.state_dict(), file)
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(FolderError, match=r"pytorch_model.bin"):
        load_model(tmp_path)
    assert "ran code" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_of_git_lfs_is_called_one(theirs: Any, name: str, tmp_path: Path) -> None:
    theirs.config.save_pretrained(tmp_path)
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n")
    with pytest.raises(FolderError, match=r"Git LFS pointer.*git lfs pull"):
        load_model(tmp_path)
