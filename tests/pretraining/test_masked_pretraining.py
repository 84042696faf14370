"""The masked objective: what is hidden, that ranks only divide it, its loss, and a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import main
from headwater.inference import load
from headwater.model import IGNORE, build_model, cross_entropy, preset, save_model
from headwater.model.loss import cross_entropy_plainly
from headwater.pretraining import PretrainConfig, Sampler, TokenBatch, TokenStream, masked, pretrain
from headwater.pretraining.masking import Masking
from headwater.training import read_journal

TINY = {
    "preset": "bert-nano",
    "context": 32,
    "model": {"width": 32, "heads": 2, "layers": 2},
    "steps": 30,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "warmup_steps": 3,
    "validate_every": 10,
    "checkpoint_every": 10,
    "precision": "fp32",
    "dropout": 0.0,
}


def test_the_shares_are_those_of_the_paper() -> None:
    ids = np.arange(1_000, 21_000)
    masking = Masking(mask=5, vocabulary=50_000, seed=3)
    read, targets = masking.window(ids, np.ones(len(ids), dtype=bool), 0, 0)
    chosen = targets != IGNORE
    assert chosen.sum() == 3_000
    assert np.array_equal(targets[chosen], ids[chosen])
    assert np.array_equal(read[~chosen], ids[~chosen])
    hidden, kept = (read == 5) & chosen, (read == ids) & chosen
    # 4.5 standard deviations of a binomial of 3,000.
    assert abs(hidden.sum() - 2_400) < 100
    assert abs(kept.sum() - 300) < 75
    assert len(np.unique(read[chosen & ~hidden & ~kept])) > 200


@settings(max_examples=40, deadline=None)
@given(
    update=st.integers(0, 2**40), row=st.integers(0, 2**20), seed=st.integers(0, 2**40), time=st.integers(1, 60)
)
def test_a_mask_depends_on_seed_update_and_row_alone(update: int, row: int, seed: int, time: int) -> None:
    ids = np.arange(time)
    candidates = np.arange(time) >= time // 3
    masking = Masking(mask=99, vocabulary=90, seed=seed)
    first = masking.window(ids, candidates, update, row)
    masking.window(ids, candidates, update + 1, row)
    again = masking.window(ids, candidates, update, row)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    chosen = first[1] != IGNORE
    assert chosen.sum() >= 1
    assert not (chosen & ~candidates).any()


def test_ranks_and_micro_batches_only_divide_the_update(tokens: Path) -> None:
    stream = TokenStream(tokens, "train", 16, masking=Masking(7, 300, 1))
    whole = Sampler(stream, 6, 6, 1).micro_batches(3)[0]
    parts = [Sampler(stream, 6, 2, 1, rank, 2).micro_batches(3) for rank in range(2)]
    for rank, batches in enumerate(parts):
        for name in ("ids", "targets", "weights"):
            joined = torch.cat([getattr(batch, name) for batch in batches])
            assert torch.equal(joined, getattr(whole, name)[rank::2])
    assert float(whole.weights.sum()) == pytest.approx(1)


def test_a_rank_reads_its_own_windows_only(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = TokenStream(tokens, "train", 16, masking=Masking(300, 300, 1))
    step = (stream.windows - 1) // 6  # the last window of a shard, which overlaps, is in it
    whole = Sampler(stream, 6, 6, 1).micro_batches(step)[0]
    window, read = TokenStream.window, []
    monkeypatch.setattr(TokenStream, "window", lambda self, index: read.append(index) or window(self, index))
    for rank in range(3):
        sampler = Sampler(stream, 6, 6, 1, rank, 3)
        read.clear()
        (batch,) = sampler.micro_batches(step)
        assert len(read) == 2
        assert set(sampler.windows_of(step)[rank::3]) <= set(read)
        for name in ("ids", "targets", "weights"):
            assert torch.equal(getattr(batch, name), getattr(whole, name)[rank::3]), name


def test_held_out_windows_are_masked_equally_in_any_batch(tokens: Path) -> None:
    stream = TokenStream(tokens, "validation", 16, masking=Masking(7, 300, 1))
    together = stream.batch(np.array([0, 2]))
    assert torch.equal(together[1][1], stream.batch(np.array([2]))[1][0])


def test_the_loss_is_that_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = build_model(
        preset("bert-base", vocabulary=90, context=24, layers=1, width=32, heads=2, dropout=0.0), seed=3
    )
    save_model(model, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).train()
    ids = torch.randint(90, (3, 24), generator=torch.Generator().manual_seed(1))
    targets = torch.where(torch.rand(ids.shape, generator=torch.Generator().manual_seed(2)) < 0.2, ids, IGNORE)
    expected = theirs(ids, labels=targets).loss
    expected.backward()
    weights = (targets != IGNORE).float() / (targets != IGNORE).sum()
    loss, _ = masked(model, TokenBatch(ids, targets, weights))
    loss.backward()
    assert torch.allclose(loss, expected, atol=1e-5)
    assert torch.allclose(model.output_transform.bias.grad, theirs.cls.predictions.bias.grad, atol=1e-6)
    tied = theirs.bert.embeddings.word_embeddings.weight.grad
    # transformers keeps row 0, the padding, out of the embeddings' gradient.
    assert torch.allclose(model.tokens.weight.grad[1:], tied[1:], atol=1e-5)


def test_cross_entropy_with_a_bias_equals_the_plain_one() -> None:
    generator = torch.Generator().manual_seed(1)
    hidden, matrix, bias = (torch.randn(shape, generator=generator) for shape in ((40, 8), (70, 8), (70,)))
    targets, weights = torch.randint(70, (40,), generator=generator), torch.rand(40, generator=generator)
    found = []
    for function in (cross_entropy, cross_entropy_plainly):
        leaves = [x.clone().requires_grad_() for x in (hidden, matrix, bias)]
        loss = function(*leaves[:2], targets, weights, bias=leaves[2])
        (3 * loss).backward()
        found.append([loss, *(leaf.grad for leaf in leaves)])
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, atol=1e-4)


@pytest.mark.parametrize("name", ["bert-nano", "bert-base"])
def test_a_run_learns_and_resumes(
    tokens: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = TINY["model"] | ({"context": 32} if name == "bert-base" else {})
    config = PretrainConfig.build(TINY, {"preset": name, "model": shape})
    pretrain(config, tokens, tmp_path / "whole")
    losses = [row["loss"] for row in read_journal(tmp_path / "whole" / "metrics.jsonl")]
    assert sum(losses[-5:]) < sum(losses[:5]) - 1
    lm = load(tmp_path / "whole" / "model")
    assert lm.tokenizer.mask is not None
    assert lm.model.config.vocabulary == lm.tokenizer.vocabulary_size
    # Stopped after 10 updates and resumed, the weights are the same bits.
    (tmp_path / "cut").mkdir()

    def stop(model: object, step: int) -> dict[str, float]:
        if step == 13:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        pretrain(config, tokens, tmp_path / "cut", more_figures=stop)
    pretrain(config, tokens, tmp_path / "cut")
    again = load(tmp_path / "cut" / "model").model
    assert all(torch.equal(a, b) for a, b in zip(lm.model.parameters(), again.parameters(), strict=True))
    assert main(["pretrain", "--resume", "--out", str(tmp_path / "cut")]) == 0
    assert "headwater generate" not in capsys.readouterr().err  # which refuses a masked model


def test_a_masked_model_resumes_on_its_own_tokens(tokens: Path, tmp_path: Path) -> None:
    """They were packed without the tokens that the model's tokenizer has in addition."""
    settings = {"steps": 2, "learning_rate": 1e-9}
    pretrain(PretrainConfig.build(TINY, {"preset": "bert-nano", **settings}), tokens, tmp_path / "run")
    more = PretrainConfig(init_from=str(tmp_path / "run" / "model"), batch_size=2, precision="fp32", **settings)
    pretrain(more, tokens, tmp_path / "more")
    before, after = (load(tmp_path / name / "model").model for name in ("run", "more"))
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_both_directions_of_an_lstm_are_learned(tokens: Path, tmp_path: Path) -> None:
    shape = {"width": 32, "units": 40}
    config = PretrainConfig.build(TINY | {"model": shape}, {"preset": "bilstm-nano"})
    pretrain(config, tokens, tmp_path / "run")
    rows = read_journal(tmp_path / "run" / "metrics.jsonl")
    for name in ("forward", "backward"):
        assert sum(row[name] for row in rows[-5:]) < sum(row[name] for row in rows[:5]) - 1
    assert rows[-1]["loss"] == pytest.approx((rows[-1]["forward"] + rows[-1]["backward"]) / 2, rel=1e-5)
    assert load(tmp_path / "run" / "model").config.output_width == 64
