"""Folders: what transformers writes opens here with the same logits, and the other way round."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model import ModelConfig, build_model, load_model, preset, save_model
from headwater.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

CLASSES = {
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "openai-gpt": (transformers.OpenAIGPTConfig, transformers.OpenAIGPTLMHeadModel),
}
SHAPES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(CLASSES)),
        "heads": st.integers(1, 4),
        "head_dim": st.sampled_from([1, 4, 7, 16]),
        "layers": st.integers(1, 4),
        "context": st.integers(1, 40),
        "vocabulary": st.integers(2, 300),
        "seed": st.integers(0, 2**31),
    }
)


def reference(shape: dict[str, Any], folder: Path, **saving: Any) -> Any:
    """A model of transformers with every weight drawn at random, written to `folder`."""
    config_class, model_class = CLASSES[shape["kind"]]
    torch.manual_seed(shape["seed"])
    config = config_class(
        vocab_size=shape["vocabulary"],
        n_positions=shape["context"],
        n_embd=shape["heads"] * shape["head_dim"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
    )
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too: a swapped pair must show
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.to(saving.pop("dtype", torch.float32)).save_pretrained(folder, **saving)
    return model


def some_ids(shape: dict[str, Any]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(shape["seed"])
    return torch.randint(0, shape["vocabulary"], (2, shape["context"]), generator=generator)


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_logits_agree_with_transformers_in_both_directions(shape: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        theirs, ours = Path(place, "theirs"), Path(place, "ours")
        ours.mkdir()
        ids = some_ids(shape)
        expected = reference(shape, theirs)(ids).logits
        model = load_model(theirs)
        torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=0)
        save_model(model, ours)
        again = transformers.AutoModelForCausalLM.from_pretrained(ours)
        assert type(again) is CLASSES[shape["kind"]][1]
        torch.testing.assert_close(again(ids).logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", sorted(CLASSES))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_sharded_files_open(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    shape = {"kind": kind, "heads": 2, "head_dim": 8, "layers": 2, "context": 12, "vocabulary": 90, "seed": 5}
    model = reference(shape, tmp_path, dtype=dtype, max_shard_size="5KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = load_model(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded(some_ids(shape)), model.float()(some_ids(shape)).logits, atol=1e-4, rtol=0
        )


def test_a_model_in_bfloat16_keeps_norms_and_logits_in_float32(tmp_path: Path) -> None:
    model = build_model(preset("gpt2-pico", vocabulary=50), seed=1)
    save_model(model, tmp_path)
    half = load_model(tmp_path, dtype=torch.bfloat16)
    assert half.tokens.weight.dtype == torch.bfloat16
    assert {p.dtype for n, p in half.named_parameters() if "norm" in n} == {torch.float32}
    ids = torch.arange(20)[None] % 50
    assert half(ids).dtype == torch.float32
    torch.testing.assert_close(half(ids), model.eval()(ids), atol=0.05, rtol=0)


def test_added_rows_keep_the_old_ones_and_open_in_transformers(tmp_path: Path) -> None:
    model = build_model(preset("gpt1-nano", vocabulary=60, context=16), seed=2).eval()
    ids = torch.arange(12)[None]
    before = model(ids)
    model.add_rows(3, seed=7)
    torch.testing.assert_close(model(ids)[..., :60], before)
    assert model.config.vocabulary == 63
    assert 0.005 < model.tokens.weight[60:].std() < 0.05
    save_model(model, tmp_path)
    reopened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(reopened(ids + 51).logits, model(ids + 51), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "config",
    [
        preset("lstm-nano", vocabulary=50, units=24, width=12),
        preset("gpt2-pico", vocabulary=50, final_norm=False),
        preset("gpt1-nano", vocabulary=50, embedding_dropout="matrix", softmax_rows="all"),
    ],
    ids=["lstm", "no-final-norm", "gpt1-as-the-original-code"],
)
def test_what_transformers_has_no_word_for_survives(config: ModelConfig, tmp_path: Path) -> None:
    model = build_model(config, seed=3).eval()
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == config
    ids = torch.arange(9)[None]
    assert torch.equal(again(ids), model(ids))


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save_model(build_model(preset("gpt2-pico", vocabulary=50), seed=9), tmp_path / name)
        contents.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {"config.json", "model.safetensors"}
    assert (tmp_path / "a" / "model.safetensors").stat().st_mode & 0o777 == 0o644, "other users can read it"


def test_old_files_with_masks_a_head_and_bare_names_open(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shape = {"kind": "gpt2", "heads": 2, "head_dim": 4, "layers": 1, "context": 8, "vocabulary": 30, "seed": 1}
    model = reference(shape, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    # Copies: the tensors of a file lie in it, and this one is written again.
    bare = {name.removeprefix("transformer."): tensor.clone() for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()
    bare["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(bare, tmp_path / "model.safetensors")
    ids = some_ids(shape)
    expected = model(ids).logits
    torch.testing.assert_close(load_model(tmp_path)(ids), expected, atol=1e-5, rtol=0)
    bare["lm_head.weight"] = bare["wte.weight"].clone()
    save_file(bare, tmp_path / "model.safetensors")
    torch.testing.assert_close(load_model(tmp_path)(ids), expected, atol=1e-5, rtol=0)


def test_config_json_has_what_transformers_needs(tmp_path: Path) -> None:
    save_model(build_model(preset("gpt2-pico", context=77, dropout=0.2), seed=1), tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.n_positions, config.vocab_size, config.resid_pdrop) == (77, 4096, 0.2)
    assert config.bos_token_id is None  # the original's 50,256 would be no row of this model
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gpt2"
    tokenizer = Tokenizer.train(["a river"], vocab_size=270)
    save_model(build_model(preset("gpt2-pico", context=77), seed=1), tmp_path, tokenizer=tokenizer)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 77


def test_an_ordinary_token_does_not_end_a_text(tmp_path: Path) -> None:
    """A model of GPT-2's kind with as many rows as the original, and a tokenizer without `<|endoftext|>`."""
    model = build_model(preset("gpt2-pico", vocabulary=50_257, width=8), seed=1)
    save_model(model, tmp_path, tokenizer=Tokenizer.train(["a river"], "gpt1", vocab_size=20))
    assert transformers.AutoConfig.from_pretrained(tmp_path).eos_token_id is None
    save_model(model, tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).eos_token_id == 50_256
