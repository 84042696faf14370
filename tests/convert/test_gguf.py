"""GGUF files hold the model and its tokenizer; llama.cpp, if it is installed, continues as Headwater does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from headwater.convert import convert, write_gguf
from headwater.errors import FolderError, MismatchError, UsageError
from headwater.model import Transformer, build_model, load_model, preset, save_model
from headwater.tokenizer import Tokenizer
from headwater.tokenizer.folder import Roles

gguf = pytest.importorskip("gguf")

TEXT = (
    "The river runs past the mill and under the bridge, and the miller's daughter counts the boats. "
    "Once, in the winter of 1684, it froze so hard that they held a market on the ice! "
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], kind="gpt2", vocab_size=300, special_tokens=["<|endoftext|>"])


def small_model(tokenizer: Tokenizer, **changes: object) -> Transformer:
    sizes = {"vocabulary": tokenizer.vocabulary_size, "context": 48, "width": 64, "heads": 4, "layers": 2}
    return build_model(preset("gpt2-pico", **(sizes | changes)), seed=5).eval()


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    reader = gguf.GGUFReader(path)
    return {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in reader.tensors}


@pytest.mark.parametrize(("precision", "tolerance"), [("f32", 0.0), ("f16", 1e-4), ("q8_0", 1e-3)])
def test_the_file_holds_every_weight_and_the_tokenizer(
    precision: str, tolerance: float, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = small_model(tokenizer, vocabulary=tokenizer.vocabulary_size + 4)
    write_gguf(model, tokenizer, tmp_path / "m.gguf", precision)  # type: ignore[arg-type]
    tensors = tensors_of(tmp_path / "m.gguf")
    assert len(tensors) == len(list(model.parameters()))
    block = model.blocks[1]
    for name, weight in {
        "token_embd.weight": model.tokens.weight,
        "position_embd.weight": model.positions.weight,
        "blk.1.attn_qkv.weight": block.attention.query_key_value.weight,
        "blk.1.ffn_down.bias": block.mlp.contract.bias,
        "output_norm.weight": model.final_norm.weight,
    }.items():
        exact = weight.dim() == 1 or name.startswith("position")
        np.testing.assert_allclose(tensors[name], weight.detach(), atol=0 if exact else tolerance, rtol=0)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert tokens[: tokenizer.vocabulary_size] == list(tokenizer.vocabulary.tokens)
    assert len(tokens) == model.config.vocabulary
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == tokenizer.end_of_text
    assert reader.fields["gpt2.attention.head_count"].contents() == 4
    assert reader.fields["gpt2.context_length"].contents() == 48


def test_the_roles_of_tokens_are_kept(tokenizer: Tokenizer, tmp_path: Path) -> None:
    named = Tokenizer(tokenizer.vocabulary, Roles(start=5, ends=(7, 9), padding=6))
    write_gguf(small_model(tokenizer), named, tmp_path / "m.gguf", "f32")
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    ids = [fields[f"tokenizer.ggml.{role}_token_id"].contents() for role in ("bos", "eos", "eot", "padding")]
    assert ids == [5, 7, 9, 6]


def test_an_export_names_roles_and_shape_in_every_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    named = Tokenizer(tokenizer.vocabulary, Roles(start=5, ends=(7, 9), padding=6))
    source, copy = tmp_path / "m", tmp_path / "copy"
    source.mkdir()
    save_model(small_model(tokenizer), source, tokenizer=named)
    convert(source, copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    for content in (config, json.loads((copy / "generation_config.json").read_text(encoding="utf-8"))):
        roles = [content[f"{role}_token_id"] for role in ("bos", "eos", "pad")]
        assert roles == [5, [7, 9], 6]
    theirs = transformers.AutoTokenizer.from_pretrained(copy)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (5, 7, 6)
    generation = transformers.GenerationConfig.from_pretrained(copy)
    assert (generation.eos_token_id, generation.pad_token_id) == ([7, 9], 6)
    # What llama.cpp's convert_hf_to_gguf.py reads for GPT2LMHeadModel.
    shape = transformers.AutoConfig.from_pretrained(copy)
    for key in ("n_ctx", "n_embd", "n_head", "n_layer", "layer_norm_epsilon", "vocab_size"):
        assert config[key] == getattr(shape, "n_positions" if key == "n_ctx" else key)


def test_rows_that_q8_0_cannot_hold_stay_in_f16(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_gguf(small_model(tokenizer, width=24, heads=2), tokenizer, tmp_path / "m.gguf", "q8_0")
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert types["blk.0.ffn_up.weight"] == "F16"  # rows of 24
    assert types["blk.0.ffn_down.weight"] == "Q8_0"  # rows of 96


def test_models_that_llama_cpp_cannot_open_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for name in ("gpt1-nano", "lstm-nano"):
        model = build_model(preset(name, vocabulary=300), seed=1)
        with pytest.raises(
            UsageError, match=r"llama\.cpp does not compute .* expected a GPT-2 with GELU .* Convert it to a"
        ):
            write_gguf(model, tokenizer, tmp_path / "m.gguf")
    with pytest.raises(MismatchError, match="ids and the model 20 rows"):
        write_gguf(small_model(tokenizer, vocabulary=20), tokenizer, tmp_path / "m.gguf")


def test_export_again_changes_nothing_and_replaces_no_other_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.mkdir()
    save_model(small_model(tokenizer), source, tokenizer=tokenizer)
    out = tmp_path / "m.gguf"
    convert(source, out, precision="f16")
    content = out.read_bytes()
    convert(source, out, precision="f16")
    assert out.read_bytes() == content
    with pytest.raises(FolderError, match="already contains something else"):
        convert(source, out, precision="f32")
    assert out.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "model"]
    with pytest.raises(UsageError, match="bf16"):
        convert(source, tmp_path / "n.gguf", precision="bf16")


_LLAMA = """
import json, sys
from llama_cpp import Llama
model = Llama(model_path=sys.argv[1], n_ctx=48, n_threads=1, verbose=False)
ids = model.tokenize(sys.argv[2].encode(), add_bos=False)
out = []
for token in model.generate(ids, temp=0.0, top_k=1):
    out.append(token)
    if len(out) == int(sys.argv[3]):
        break
print(json.dumps({"ids": ids, "out": out}))
"""


def llama_python() -> str:
    """An interpreter that has llama_cpp: the one that HEADWATER_LLAMA_PYTHON names, else this one."""
    interpreter = os.environ.get("HEADWATER_LLAMA_PYTHON", sys.executable)
    if subprocess.run([interpreter, "-c", "import llama_cpp"], capture_output=True).returncode:
        pytest.skip("needs llama.cpp: pip install llama-cpp-python, here or where HEADWATER_LLAMA_PYTHON points")
    return interpreter


@pytest.mark.slow
def test_llama_cpp_continues_with_the_same_tokens(tokenizer: Tokenizer, tmp_path: Path) -> None:
    interpreter = llama_python()
    model = small_model(tokenizer).train()
    ids = torch.tensor(tokenizer.encode(TEXT * 2))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    torch.manual_seed(0)
    for _ in range(200):  # until the text is known by heart, so that no two tokens are nearly equally likely
        starts = torch.randint(0, len(ids) - 40, (8,))
        batch = torch.stack([ids[start : start + 40] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3
    source = tmp_path / "model"
    source.mkdir()
    save_model(model, source, tokenizer=tokenizer)
    model = load_model(source)
    for prompt in ("The river runs", "Once, in the winter of 16"):
        expected = tokenizer.encode(prompt)
        start = len(expected)
        with torch.no_grad():
            while len(expected) < start + 25:
                expected.append(int(model(torch.tensor([expected]))[0, -1].argmax()))
        for precision in ("f32", "f16", "q8_0"):
            file = tmp_path / f"{precision}.gguf"
            convert(source, file, precision=precision)  # type: ignore[arg-type]
            run = [interpreter, "-c", _LLAMA, str(file), prompt, "25"]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            result = json.loads(done.stdout.splitlines()[-1])
            assert result["ids"] == expected[:start], precision
            assert result["out"] == expected[start:], precision


def test_added_tokens_and_roles_are_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    size = tokenizer.vocabulary_size
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    content["added_tokens"].append({"id": size, "content": "<name>", **token})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    named = Tokenizer.load(tmp_path)
    assert size in named.encode("the <name>.")
    model = small_model(named, vocabulary=size + 1)
    write_gguf(model, named, tmp_path / "m.gguf", "f32")
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["tokenizer.ggml.tokens"].contents() == list(named.vocabulary.tokens)
    assert fields["tokenizer.ggml.token_type"].contents()[size] == 4  # defined by a user
    two = Tokenizer(named.vocabulary, Roles(start=0, ends=(1, size), padding=2))
    write_gguf(model, two, tmp_path / "two.gguf", "f32")
    fields = gguf.GGUFReader(tmp_path / "two.gguf").fields
    roles = [fields[f"tokenizer.ggml.{role}_token_id"].contents() for role in ("bos", "eos", "eot", "padding")]
    assert roles == [0, 1, size, 2]
    content["added_tokens"][-1]["lstrip"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "folder").mkdir()
    save_model(model, tmp_path / "folder", tokenizer=Tokenizer.load(tmp_path))
    assert convert(tmp_path / "folder", tmp_path / "l.gguf")["left_out"] == ["lstrip of <name>"]
