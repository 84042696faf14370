"""Models with full attention: BERT's files in both directions, what a position sees, and padding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.model import build_model, load_model, padding_mask, preset, save_model
from headwater.reading import read_json
from headwater.storage import write_json

TINY = {"vocabulary": 90, "context": 24, "layers": 2, "width": 32, "heads": 4}


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_bert_folders_give_transformers_logits_both_ways(tmp_path: Path, activation: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = build_model(preset("bert-base", activation=activation, **TINY), seed=3).eval()
    with torch.no_grad():
        for parameter in ours.parameters():  # biases begin at 0, where they could not be told apart
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    save_model(ours, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__ == "BertForMaskedLM"
    (tmp_path / "back").mkdir()
    theirs.save_pretrained(tmp_path / "back")
    back = load_model(tmp_path / "back")
    for shape in ((1, 1), (2, 7), (3, 24)):
        ids = torch.randint(90, shape, generator=torch.Generator().manual_seed(2))
        segments = torch.randint(2, shape, generator=torch.Generator().manual_seed(4))
        with torch.no_grad():
            expected = theirs(ids, token_type_ids=segments).logits
            found = ours.logits(ours.hidden(ids, segments=segments))
            assert (found - expected).abs().max() < 1e-4
            assert torch.equal(back.logits(back.hidden(ids, segments=segments)), found)
            assert (ours(ids) - theirs(ids).logits).abs().max() < 1e-4


def test_a_file_with_the_release_s_names_and_further_heads_opens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    ours = build_model(preset("bert-base", **TINY), seed=3)
    save_model(ours, tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert any("pooler" in name for name in tensors)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        tensors = {key.replace(new, name): value for key, value in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    opened = load_model(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), opened.parameters(), strict=True))


def test_a_variant_that_is_not_bert_is_refused(tmp_path: Path) -> None:
    save_model(build_model(preset("bert-base", **TINY), seed=3), tmp_path)
    for key, value in {
        "hidden_act": "xielu",
        "position_embedding_type": "relative_key",
        "is_decoder": True,
        "add_cross_attention": True,
    }.items():
        content = read_json(tmp_path / "config.json")
        write_json(tmp_path / "changed.json", content)
        write_json(tmp_path / "config.json", content | {key: value})
        with pytest.raises(DataError, match=key):
            load_model(tmp_path)
        write_json(tmp_path / "config.json", content)


@pytest.mark.parametrize("name", ["bert-base", "bert-mini"])
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 24), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_padding_changes_nothing(name: str, lengths: list[int], seed: int) -> None:
    model = build_model(preset(name, **TINY), seed=1).eval()
    generator = torch.Generator().manual_seed(seed)
    time = max(lengths)
    ids = torch.randint(90, (len(lengths), time), generator=generator)
    with torch.no_grad():
        padded = model.hidden(ids, mask=padding_mask(torch.tensor(lengths), time))
        for row, length in enumerate(lengths):
            alone = model.hidden(ids[row : row + 1, :length])
            assert torch.allclose(padded[row, :length], alone[0], atol=1e-5)


def test_every_position_sees_every_other() -> None:
    ids = torch.arange(12)[None]
    changed = ids.clone()
    changed[0, -1] = 50
    for name, sees in (("bert-mini", True), ("gpt1-mini", False)):
        model = build_model(preset(name, **TINY), seed=1).eval()
        with torch.no_grad():
            differs = (model.hidden(ids) != model.hidden(changed))[0, :-1].any(dim=1)
        assert bool(differs.all()) is sees
        assert bool(differs.any()) is sees


def test_the_small_masked_models_are_gpt1_but_for_attention(tmp_path: Path) -> None:
    masked, causal = preset("bert-mini").to_dict(), preset("gpt1-mini").to_dict()
    assert {key for key in masked if masked[key] != causal[key]} == {"attention"}
    model = build_model(preset("bert-mini", **TINY), seed=1)
    save_model(model, tmp_path)
    assert load_model(tmp_path).config == model.config


def test_added_rows_have_a_bias() -> None:
    model = build_model(preset("bert-base", **TINY), seed=1)
    model.add_rows(2, seed=1)
    assert model(torch.tensor([[90, 91]])).shape == (1, 2, 92)
