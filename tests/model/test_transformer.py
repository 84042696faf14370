"""The Transformer and the LSTM: sizes of the papers, causality, caches, masks, and a model trained elsewhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwater.errors import DataError, UsageError
from headwater.model import PRESETS, Transformer, attend, build_model, preset, token_rows
from headwater.model.attention import attend_plainly, causal_mask


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt1", 116_534_784),
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_the_papers_models_have_exactly_their_parameters(name: str, count: int) -> None:
    parameters = list(build_model(preset(name), device="meta").parameters())
    assert sum(parameter.numel() for parameter in parameters) == count
    assert all(parameter.is_meta for parameter in parameters)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_builds(name: str) -> None:
    config = preset(name)
    assert build_model(config, device="meta").config == config
    if config.architecture == "transformer" and name != "gpt1":
        assert config.width // config.heads == 64


def test_a_misspelt_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'gpt2-smal'\. Did you mean 'gpt2-small'\?$"):
        preset("gpt2-smal")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gpt1-nano", "segments", 2),
        ("gpt2-nano", "embedding_norm", True),
        ("lstm-nano", "output_transform", True),
        ("bert-base", "softmax_rows", "all"),
    ],
)
def test_parts_of_bert_that_would_be_ignored_are_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{key} = {value}"):
        preset(name, **{key: value})


@pytest.mark.parametrize("name", ["gpt1-nano", "gpt2-nano", "lstm-nano"])
def test_a_seed_gives_the_same_weights_and_another_seed_others(name: str) -> None:
    config = preset(name, vocabulary=40)
    first, second, third = (build_model(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["tokens.weight"], third["tokens.weight"])


def test_initial_deviations_are_the_papers() -> None:
    model = build_model(preset("gpt2-small", layers=6, vocabulary=4_096, context=256), seed=1)
    assert model.tokens.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.positions.weight.std().item() == pytest.approx(0.01, rel=0.02)
    block = model.blocks[0]
    assert block.mlp.expand.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for residual in (block.attention.projection, block.mlp.contract):  # twelve residual layers in six blocks
        assert residual.weight.std().item() == pytest.approx(0.02 / 12**0.5, rel=0.02)
    plain = build_model(preset("gpt1", layers=1, vocabulary=400), seed=1)
    assert plain.blocks[0].mlp.contract.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_initial_deviations_grow_as_the_width_falls() -> None:
    for name in ("gpt1-mini", "gpt2-pico", "gpt2-midi", "bert-nano"):
        config = preset(name)
        assert config.init_deviation**2 * config.width == pytest.approx(0.02**2 * 768, rel=0.05)


@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    query_time=st.integers(1, 9),
    earlier=st.integers(0, 6),
    dim=st.sampled_from([1, 4, 9]),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None)
def test_fused_attention_equals_its_readable_twin(
    batch: int, heads: int, query_time: int, earlier: int, dim: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, heads, query_time, dim, generator=generator)
    key, value = torch.randn(2, batch, heads, query_time + earlier, dim, generator=generator)
    torch.testing.assert_close(attend(query, key, value), attend_plainly(query, key, value), atol=1e-5, rtol=1e-4)
    mask = torch.rand(batch, 1, query_time, query_time + earlier, generator=generator) < 0.5
    mask = mask & causal_mask(query_time, query_time + earlier, query.device)
    mask[..., 0] = True
    torch.testing.assert_close(
        attend(query, key, value, mask), attend_plainly(query, key, value, mask), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("name", ["gpt1-nano", "gpt2-nano", "lstm-nano"])
def test_no_position_sees_what_comes_after_it(name: str) -> None:
    model = build_model(preset(name, vocabulary=40), seed=1).eval()
    ids = torch.arange(12)[None]
    changed = ids.clone()
    changed[0, 7:] = 39
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_an_lstm_continues_from_its_state_and_has_no_mask() -> None:
    model = build_model(preset("lstm-nano", vocabulary=40), seed=1).eval()
    ids = torch.arange(12)[None]
    state: list[torch.Tensor] = []
    pieces = [model.hidden(part, state=state) for part in ids.split([5, 7], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model.hidden(ids), atol=1e-6, rtol=1e-5)
    with pytest.raises(UsageError, match="mask"):
        model.hidden(ids, mask=torch.ones(1, 1, 12, 12, dtype=torch.bool))


def test_an_lstm_trains_in_bfloat16_with_forget_gates_open() -> None:
    model = build_model(preset("lstm-nano", vocabulary=40), seed=1)
    units = model.config.units
    assert units is not None
    bias = model.recurrence.bias_ih_l0.detach()
    assert torch.equal(bias[units : 2 * units], torch.ones(units))
    assert bias.sum() == units
    model.to(torch.bfloat16)
    logits = model(torch.arange(12)[None])
    assert logits.dtype == torch.float32
    logits.logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_text_beyond_the_context_is_refused() -> None:
    model = build_model(preset("gpt2-pico", context=8), seed=1)
    with pytest.raises(DataError, match="9 tokens are longer than the model's context; expected at most 8"):
        model(torch.zeros(1, 9, dtype=torch.int64))


def test_dropout_on_the_matrix_drops_the_same_entries_in_and_out() -> None:
    config = preset("gpt1-nano", vocabulary=40, dropout=0.5, embedding_dropout="matrix", softmax_rows="all")
    model = build_model(config, seed=1).train()
    torch.manual_seed(0)
    embeddings = model.embeddings()
    assert 0.3 < (embeddings.tokens == 0).float().mean() < 0.7
    assert torch.equal(model.output_matrix(embeddings)[:40], embeddings.tokens)
    assert model(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 40 + config.context)


def test_read_rows_have_the_dropout_of_one_matrix() -> None:
    config = preset("gpt1-nano", vocabulary=40, dropout=0.5, embedding_dropout="matrix")
    model = build_model(config, seed=1)
    assert isinstance(model, Transformer)
    ids = torch.tensor([[3, 7, 3], [9, 3, 7]])
    assert torch.equal(token_rows(model.eval(), ids, None), model.tokens.weight[ids])
    rows = token_rows(model.train(), ids, None)
    kept = rows != 0
    assert torch.equal(rows[0, 0], rows[0, 2])
    assert torch.equal(rows[0, 1], rows[1, 2])
    assert not torch.equal(kept[0, 0], kept[0, 1])
    torch.testing.assert_close(rows, 2 * model.tokens.weight[ids] * kept)
    rows.sum().backward()
    expected = torch.zeros(40, config.width).index_add(0, ids.flatten(), 2.0 * kept.flatten(0, 1))
    torch.testing.assert_close(model.tokens.weight.grad, expected)


def sort_model(folder: Path) -> tuple[Transformer, dict[str, Tensor]]:
    def tensors(name: str) -> dict[str, Tensor]:
        content = json.loads((folder / name).read_text())
        return {
            key: torch.frombuffer(bytearray(base64.b64decode(value["data"])), dtype=torch.float32).view(
                value["shape"]
            )
            for key, value in content.items()
            if key != "config"
        }

    names = {
        "c_attn": "query_key_value",
        "c_fc": "expand",
        "ln_1": "norm_1",
        "ln_2": "norm_2",
        "attn": "attention",
    }
    weights = tensors("gpt-nano-sort-model.json")
    state = {}
    for key, tensor in weights.items():
        parts = key.removeprefix("transformer.").split(".")
        if key.endswith(".attn.bias") or key == "lm_head.weight":
            continue
        if parts[0] == "h":
            inner = "projection" if parts[2] == "attn" else "contract"
            parts[2:-1] = [inner if part == "c_proj" else names.get(part, part) for part in parts[2:-1]]
            parts[0] = "blocks"
        else:
            parts[0] = {"wte": "tokens", "wpe": "positions", "ln_f": "final_norm"}[parts[0]]
        state[".".join(parts)] = tensor
    model = build_model(preset("gpt2-nano", vocabulary=3, context=11, width=48, layers=3, heads=3))
    model.load_state_dict(state)
    return model.eval(), weights | tensors("gpt-nano-sort-t0-partials.json")


@torch.no_grad()
def test_a_foreign_model_gives_its_recorded_activations(golden_data: Path) -> None:
    model, recorded = sort_model(golden_data / "weights/gpt-nano-sort")

    def check(value: Tensor, name: str) -> None:
        torch.testing.assert_close(value, recorded[name].view(value.shape), atol=1e-4, rtol=1e-4, msg=name)

    ids = recorded["idx"].long()
    x = model.tokens(ids) + model.positions.weight
    check(x, "x")
    block = model.blocks[0]
    check(block.norm_1(x), "ln1")
    check(block.attention.query_key_value(block.norm_1(x)), "qkv")
    attended = x + block.attention(block.norm_1(x))
    check(attended, "attnResid")
    check(block.norm_2(attended), "ln2")
    check(block.mlp.expand(block.norm_2(attended)), "fc")
    check(block.mlp(block.norm_2(attended)), "mlp")
    for layer, block in enumerate(model.blocks):
        x = block(x)
        check(x, f"block{layer}")
    check(model.hidden(ids), "ln_f")
    # Its head was trained apart from its embeddings, so it is applied by hand.
    logits = model.hidden(ids) @ recorded["lm_head.weight"].T
    check(logits, "lm_head")
    check(logits.softmax(-1), "probs")


def test_faithful_decides_what_the_papers_leave_open() -> None:
    code, paper = preset("gpt1"), preset("gpt1", faithful="paper")
    assert (code.embedding_dropout, code.softmax_rows) == ("matrix", "all")
    assert (paper.embedding_dropout, paper.softmax_rows) == ("sum", "vocabulary")
    assert preset("gpt1", softmax_rows="vocabulary").softmax_rows == "vocabulary"
    assert preset("gpt2-small").position_deviation == 0.01
    assert preset("gpt2-small", faithful="paper").position_deviation == 0.02
    assert code.faithful_to("paper") == paper
    # Position rows are never a target: outside training the model predicts its vocabulary.
    model = build_model(preset("gpt1-nano", vocabulary=40), seed=1)
    assert model.train()(torch.zeros(1, 3, dtype=torch.int64)).shape[-1] > 40
    assert model.eval()(torch.zeros(1, 3, dtype=torch.int64)).shape[-1] == 40
