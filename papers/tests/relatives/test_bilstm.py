"""ELMo's model: its size, what each direction sees, its mixture, its objective, and a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from headwater.errors import UsageError
from headwater.inference import load
from headwater.model import IGNORE, build_model, load_model, padding_mask, preset, save_model
from headwater.pretraining import TokenBatch
from headwater_papers.relatives.bilstm import both_directions
from headwater_papers.relatives.frozen import layer_outputs

TINY = {"vocabulary": 50, "context": 16, "width": 8, "units": 12}


@pytest.mark.parametrize("size", ["nano", "mini"])
def test_its_parameters_are_as_near_to_gpt_as_alignment_allows(size: str) -> None:
    units, gpt = preset(f"bilstm-{size}").units, preset(f"gpt1-{size}").parameter_count
    assert units is not None

    def distance(units: int) -> int:
        return abs(preset(f"bilstm-{size}", units=units).parameter_count - gpt)

    assert distance(units) < min(distance(units - 8), distance(units + 8))
    assert distance(units) < 0.015 * gpt


def test_each_direction_sees_its_side_and_itself() -> None:
    model = build_model(preset("bilstm-nano", **TINY), seed=1).eval()
    ids = torch.arange(9)[None]
    changed = ids.clone()
    changed[0, 4] = 30
    with torch.no_grad():
        forwards, backwards = (model.hidden(ids) != model.hidden(changed)).chunk(2, dim=2)
    assert forwards[0].any(dim=1).tolist() == [False] * 4 + [True] * 5
    assert backwards[0].any(dim=1).tolist() == [True] * 5 + [False] * 4


def test_no_predictor_sees_what_it_predicts() -> None:
    """The forward one predicts `following`, the backward one `ids`."""
    model = build_model(preset("bilstm-nano", **TINY), seed=1).eval()
    window, changed = torch.arange(10)[None], torch.arange(10)[None]
    changed[0, 5] = 30
    with torch.no_grad():
        before, after = (model.predictors(w[:, :-1], w[:, 1:]) for w in (window, changed))
    forwards, backwards = ((a != b)[0].any(dim=1).tolist() for a, b in zip(before, after, strict=True))
    assert forwards == [False] * 5 + [True] * 4  # place 4 predicts token 5
    assert backwards == [True] * 5 + [False] * 4  # place 5 predicts token 5


def test_padding_changes_nothing() -> None:
    model = build_model(preset("bilstm-nano", **TINY), seed=1).eval()
    ids = torch.randint(50, (3, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([9, 1, 5])
    with torch.no_grad():
        layers: list[torch.Tensor] = []
        padded = model.hidden(ids, mask=padding_mask(lengths, 9), layers=layers)
        assert len(layers) == layer_outputs(model)
        assert {layer.shape[2] for layer in layers} == {model.config.output_width}
        for row, length in enumerate(lengths.tolist()):
            alone = model.hidden(ids[row : row + 1, :length])
            assert torch.allclose(padded[row, :length], alone[0], atol=1e-6)


def test_the_loss_is_the_mean_of_both_directions_over_new_tokens() -> None:
    model = build_model(preset("bilstm-nano", **TINY, dropout=0.0), seed=1)
    window = torch.randint(50, (2, 10), generator=torch.Generator().manual_seed(1))
    ids, following = window[:, :-1], window[:, 1:]
    targets = following.clone()
    targets[1, :4] = IGNORE  # a window that overlaps the one before it
    new = targets != IGNORE
    with torch.no_grad():
        loss, logged = both_directions(model, TokenBatch(ids, targets, new.float() / new.sum()))
        predictors = zip(model.predictors(ids, following), (following, ids), strict=True)
        plain = [functional.cross_entropy(model.logits(hidden)[new], truth[new]) for hidden, truth in predictors]
    assert float(loss) == pytest.approx(float(sum(plain)) / 2, rel=1e-5)
    assert float(logged["forward"] + logged["backward"]) == pytest.approx(float(sum(plain)), rel=1e-5)


def test_a_folder_opens_again_and_neither_writes_nor_fills(tmp_path: Path) -> None:
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.train(["the river and the sea"], kind="gpt2", vocab_size=270)
    model = build_model(preset("bilstm-nano", **TINY | {"vocabulary": 270}), seed=1)
    save_model(model, tmp_path, tokenizer=tokenizer)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), load_model(tmp_path).parameters(), strict=True)
    )
    lm = load(tmp_path)
    for call in (
        lambda: lm.generate("the"),
        lambda: lm.fill("the [MASK]"),
        lambda: lm.logits(torch.zeros(1, 2).long()),
    ):
        with pytest.raises(UsageError, match=r"this model does not (read|fill).*headwater finetune"):
            call()
