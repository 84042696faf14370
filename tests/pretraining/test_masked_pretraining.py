"""The masked objective: what is hidden, that ranks only divide it, its loss, and a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import main
from headwater.errors import UsageError
from headwater.inference import load
from headwater.model import IGNORE, build_model, cross_entropy, preset, save_model
from headwater.model.loss import cross_entropy_plainly
from headwater.pretraining import PretrainConfig, Sampler, TokenBatch, TokenStream, masked, pretrain
from headwater.pretraining.masking import MaskedSampler, MaskedStream, Masking, Pairing
from headwater.pretraining.pretraining import build_run
from headwater.pretraining.recipe import resolve
from headwater.storage import SILENT
from headwater.training import Ranks, read_journal

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
    stream, masking = TokenStream(tokens, "train", 16), Masking(7, 300, 1)
    whole = MaskedSampler(Sampler(stream, 6, 6, 1), masking).micro_batches(3)[0]
    parts = [MaskedSampler(Sampler(stream, 6, 2, 1, rank, 2), masking).micro_batches(3) for rank in range(2)]
    for rank, batches in enumerate(parts):
        for name in ("ids", "targets", "weights"):
            joined = torch.cat([getattr(batch, name) for batch in batches])
            assert torch.equal(joined, getattr(whole, name)[rank::2])
    assert float(whole.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize("pairing", [None, Pairing(301, 302, 303)])
def test_a_rank_reads_its_own_windows_only(
    tokens: Path, monkeypatch: pytest.MonkeyPatch, pairing: Pairing | None
) -> None:
    stream, masking = TokenStream(tokens, "train", 16), Masking(300, 300, 1)
    step = (stream.windows - 1) // 6  # the last window of a shard, which overlaps, is in it
    whole = MaskedSampler(Sampler(stream, 6, 6, 1), masking, pairing).micro_batches(step)[0]
    window, read = TokenStream.window, []
    monkeypatch.setattr(TokenStream, "window", lambda self, index: read.append(index) or window(self, index))
    for rank in range(3):
        sampler = Sampler(stream, 6, 6, 1, rank, 3)
        read.clear()
        (batch,) = MaskedSampler(sampler, masking, pairing).micro_batches(step)
        elsewhere = 0 if batch.random_next is None else int(batch.random_next.sum())
        assert len(read) == 2 + elsewhere
        assert set(sampler.windows_of(step)[rank::3]) <= set(read)
        for name in ("ids", "targets", "weights", "segments", "random_next", "pair_weights"):
            mine, every = getattr(batch, name), getattr(whole, name)
            assert mine is every is None or torch.equal(mine, every[rank::3]), name


def test_held_out_windows_are_masked_equally_in_any_batch(tokens: Path) -> None:
    stream = MaskedStream(TokenStream(tokens, "validation", 16), Masking(7, 300, 1))
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
        pretrain(config, tokens, tmp_path / "cut", follow=stop)
    pretrain(config, tokens, tmp_path / "cut")
    again = load(tmp_path / "cut" / "model").model
    assert all(torch.equal(a, b) for a, b in zip(lm.model.parameters(), again.parameters(), strict=True))
    assert main(["pretrain", "--resume", "--out", str(tmp_path / "cut")]) == 0
    shown = capsys.readouterr().err
    assert "headwater fill TEXT" in shown
    assert "headwater generate" not in shown  # which refuses a masked model


def test_documents_are_not_kept_apart_in_a_masked_model(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only for causal attention"):
        pretrain(PretrainConfig.build(TINY, {"cross_documents": False}), tokens, tmp_path / "run")


def test_pairs_are_of_the_window_or_of_another_one(tokens: Path) -> None:
    stream = TokenStream(tokens, "train", 13)
    pairing, masking = Pairing(301, 302, 303), Masking(300, 300, seed=1)
    elsewhere = 0
    for index in range(stream.windows):
        ids, _ = stream.window(index)
        second = pairing.second(stream, index, np.random.default_rng(index))
        read, segments = pairing.pair(stream, index, second)
        candidates, is_random = pairing.candidates(stream, index, second), second != index
        assert read[[0, 7, 15]].tolist() == [301, 302, 303]
        assert not candidates[[0, 7, 15]].any()
        assert segments.tolist() == [0] * 8 + [1] * 8
        assert np.array_equal(read[1:7], ids[:6])
        assert np.array_equal(read[8:15], ids[6:]) is not is_random
        elsewhere += is_random
    # 4.5 standard deviations of a binomial.
    assert abs(elsewhere - stream.windows / 2) < 4.5 * (stream.windows / 4) ** 0.5
    sampler = MaskedSampler(Sampler(stream, 6, 2, 1), masking, pairing)
    assert sampler.tokens(0) == 6 * 16
    batches = sampler.micro_batches(3)
    assert sum(float(batch.pair_weights.sum()) for batch in batches) == pytest.approx(1)
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(batches, sampler.micro_batches(3), strict=True))
    assert MaskedSampler(Sampler(stream, 6, 6, 1), masking).micro_batches(3)[0].segments is None


def test_next_sentences_are_learned_and_open_in_transformers(tokens: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = PretrainConfig.build(
        TINY, {"preset": "bert-base", "model": TINY["model"] | {"context": 32}, "next_sentence": True, "steps": 6}
    )
    pretrain(config, tokens, tmp_path / "run")
    assert {"masked", "next_sentence"} <= set(read_journal(tmp_path / "run" / "metrics.jsonl")[-1])
    model = load(tmp_path / "run" / "model").model
    assert model.config.next_sentence
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "run" / "model").eval()
    ids = torch.arange(12)[None]
    segments = (ids > 5).long()
    with torch.no_grad():
        expected = theirs(ids, token_type_ids=segments).seq_relationship_logits
        found = model.next_sentence(model.hidden(ids, segments=segments)[:, 0])
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_masked_model_resumes_on_its_own_tokens(tokens: Path, tmp_path: Path, next_sentence: bool) -> None:
    """They were packed without the tokens that the model's tokenizer has in addition."""
    settings = {"next_sentence": next_sentence, "steps": 2, "learning_rate": 1e-9}
    pretrain(PretrainConfig.build(TINY, {"preset": "bert-nano", **settings}), tokens, tmp_path / "run")
    more = PretrainConfig(init_from=str(tmp_path / "run" / "model"), batch_size=2, precision="fp32", **settings)
    pretrain(more, tokens, tmp_path / "more")
    before, after = (load(tmp_path / name / "model").model for name in ("run", "more"))
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_text_pairs_fill_the_window_and_read_every_token(tokens: Path, tmp_path: Path) -> None:
    config = PretrainConfig.build(TINY, {"next_sentence": True})
    run = build_run(resolve(config, tokens, Ranks()), tokens, tmp_path / "run", Ranks(), SILENT)
    assert isinstance(run.source, MaskedSampler)
    assert run.source.pairing is not None
    assert run.read(0)[0].ids.shape[1] == 32
    stream = run.source.sampler.stream
    whole = np.concatenate([run.source.pairing.pair(stream, index, index)[0] for index in range(3)])
    text = np.concatenate([stream.window(index)[0] for index in range(3)])
    added = [run.source.pairing.start, run.source.pairing.separator, run.source.pairing.last]
    assert np.array_equal(whole[~np.isin(whole, added)], text[~np.isin(text, added)])
    assert len(whole) == len(text) + 3 * 3
    with pytest.raises(UsageError, match=r"context = 4 is too short for pairs .*at least 5"):
        resolve(PretrainConfig.build(TINY, {"next_sentence": True, "context": 4}), tokens, Ranks())


def test_next_sentences_need_a_masked_model(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not masked"):
        pretrain(
            PretrainConfig.build(TINY, {"preset": "gpt1-nano", "next_sentence": True}), tokens, tmp_path / "run"
        )


def test_both_directions_of_an_lstm_are_learned(tokens: Path, tmp_path: Path) -> None:
    shape = {"width": 32, "units": 40}
    config = PretrainConfig.build(TINY | {"model": shape}, {"preset": "bilstm-nano"})
    pretrain(config, tokens, tmp_path / "run")
    rows = read_journal(tmp_path / "run" / "metrics.jsonl")
    for name in ("forward", "backward"):
        assert sum(row[name] for row in rows[-5:]) < sum(row[name] for row in rows[:5]) - 1
    assert rows[-1]["loss"] == pytest.approx((rows[-1]["forward"] + rows[-1]["backward"]) / 2, rel=1e-5)
    assert load(tmp_path / "run" / "model").config.output_width == 64
