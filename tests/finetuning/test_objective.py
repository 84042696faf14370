"""L2, L3, their averages, clipping and schedule against small independent NumPy references."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from headwater.finetuning import Batch, Encoded, ExampleSampler, FinetuneConfig, Labels, TaskModel, TaskName
from headwater.finetuning.model.batches import collate, inference_batches
from headwater.finetuning.model.heads import l3
from headwater.model import ModelConfig, build_model
from headwater.training import Trainer
from headwater.training.schedule import PAPER_WIDTH

PAPER = ModelConfig(width=PAPER_WIDTH)

Array = npt.NDArray[np.float64]


def tiny(task: TaskName, outputs: int, dropout: float = 0.0) -> TaskModel:
    config = ModelConfig(vocabulary=40, context=16, layers=1, width=8, heads=2)
    return TaskModel(build_model(config, seed=3), task, outputs, dropout=dropout, seed=4)


def random_examples(counts: list[int], seed: int, target_high: int) -> Encoded:
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 12, sum(counts))
    return Encoded(
        random.integers(0, 40, lengths.sum()).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([[0], np.cumsum(counts)]),
        random.integers(0, target_high, len(counts)).astype(np.float64),
    )


def whole_batch(encoded: Encoded, labels: Labels) -> Batch:
    return collate(
        encoded,
        range(len(encoded)),
        labels.probabilities(encoded),
        update_examples=len(encoded),
        update_sequences=len(encoded.lengths),
    )


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def reference(model: TaskModel, encoded: Encoded, task: TaskName, soft: Array, lambda_lm: float) -> float:
    """The paper's equations, one sequence at a time, no padding."""
    weight, bias = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    matrix = model.model.output_matrix().detach().numpy().astype(np.float64)
    class_losses, token_losses = [], []
    for example in range(len(encoded)):
        pooled = []
        for number in range(encoded.first[example], encoded.first[example + 1]):
            ids = encoded.sequence(number)
            hidden = model.model.hidden(torch.tensor([ids]))[0].detach().numpy().astype(np.float64)
            pooled.append(hidden[-1])
            shares = log_softmax(hidden[:-1] @ matrix.T)
            token_losses.append(-np.mean([shares[i, ids[i + 1]] for i in range(len(ids) - 1)]))
        if task == "choice":
            logits = np.array([(vector @ weight.T + bias)[0] for vector in pooled])
        else:
            logits = np.sum(pooled, axis=0) @ weight.T + bias
        class_losses.append(-(soft[example, : len(logits)] * log_softmax(logits)).sum())
    return float(np.mean(class_losses) + lambda_lm * np.mean(token_losses))


CASES: list[tuple[TaskName, list[int], Labels, int]] = [
    ("classify", [1] * 5, Labels(target="class", names=["a", "b", "c"]), 3),
    ("similarity", [2] * 4, Labels(target="score", levels=[0, 1, 2, 3, 4, 5]), 5),
    ("choice", [2, 4, 3, 2], Labels(target="answer"), 2),
]


@pytest.mark.parametrize(("task", "counts", "labels", "high"), CASES, ids=[case[0] for case in CASES])
def test_the_loss_is_the_papers(task: TaskName, counts: list[int], labels: Labels, high: int) -> None:
    encoded = random_examples(counts, seed=5, target_high=high)
    model = tiny(task, labels.outputs).eval()
    soft = labels.probabilities(encoded).astype(np.float64)
    batch = whole_batch(encoded, labels)
    for objective, weight in ((l3(0), 0.0), (l3(0.5), 0.5), (l3(2.0), 2.0)):
        loss, logged = objective(model, batch)
        assert loss.item() == pytest.approx(reference(model, encoded, task, soft, weight), abs=1e-5)
        assert loss.item() == pytest.approx(sum(float(v) * {"l2": 1, "l1": weight}[k] for k, v in logged.items()))


@pytest.mark.parametrize(("task", "counts", "labels", "high"), CASES, ids=[case[0] for case in CASES])
def test_micro_batches_add_up_to_the_whole(task: TaskName, counts: list[int], labels: Labels, high: int) -> None:
    encoded = random_examples(counts, seed=6, target_high=high)
    model = tiny(task, labels.outputs).eval()
    l3(0.5)(model, whole_batch(encoded, labels))[0].backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    source = ExampleSampler(encoded, labels.probabilities(encoded), batch_size=len(encoded), seed=1, micro_batch=2)
    parts = source.micro_batches(0)
    assert len(parts) > 1
    for part in parts:
        l3(0.5)(model, part)[0].backward()
    summed = [p.grad for p in model.parameters() if p.grad is not None]
    for one, other in zip(whole, summed, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_scores_are_shared_between_the_two_nearest_levels() -> None:
    labels = Labels(target="score", levels=[0, 1, 2, 3, 4, 5])
    encoded = random_examples([1, 1, 1, 1], seed=1, target_high=5)
    scores = np.array([0.0, 3.8, 5.0, np.nan])
    soft = labels.probabilities(Encoded(encoded.ids, encoded.starts, encoded.first, scores))
    expected = [[1, 0, 0, 0, 0, 0], [0, 0, 0, 0.2, 0.8, 0], [0, 0, 0, 0, 0, 1], [0] * 6]
    np.testing.assert_allclose(soft, expected, atol=1e-6)
    np.testing.assert_allclose(soft[:3] @ np.arange(6), scores[:3], atol=1e-6)


def test_candidates_of_an_example_share_their_dropout() -> None:
    model = tiny("choice", 1, dropout=0.5).train()
    batch = whole_batch(random_examples([3, 2], seed=2, target_high=2), Labels(target="answer"))
    torch.manual_seed(0)
    logits = model.classify(torch.ones(5, 8), batch)
    assert logits[0, 0] == logits[0, 1] == logits[0, 2]
    assert logits[1, 0] == logits[1, 1]
    assert logits[0, 0] != logits[1, 0]


def test_an_epoch_has_every_example_once_for_any_micro_batch() -> None:
    encoded = random_examples([1] * 70, seed=8, target_high=2)
    labels = Labels(target="class", names=["a", "b"])

    def seen(micro_batch: int) -> list[list[tuple[int, ...]]]:
        source = ExampleSampler(
            encoded, labels.probabilities(encoded), batch_size=8, micro_batch=micro_batch, seed=3
        )
        result = []
        for step in range(18):
            parts = source.micro_batches(step)
            rows = [
                tuple(row[: end + 1].tolist()) for p in parts for row, end in zip(p.ids, p.extract, strict=True)
            ]
            assert sum(float(p.weights.sum()) for p in parts) == pytest.approx(1)
            assert sum(float(p.token_weights.sum()) for p in parts) == pytest.approx(1)
            assert source.tokens(step) == sum(map(len, rows))
            result.append(rows)
        return result

    order = seen(8)
    assert order == seen(3)
    every = sorted(tuple(encoded.sequence(n)) for n in range(70))
    assert sorted(row for update in order[:9] for row in update) == every
    assert sorted(row for update in order[9:] for row in update) == every
    assert order[:9] != order[9:]


def test_prediction_covers_every_example_once() -> None:
    encoded = random_examples([2, 3, 2, 4] * 9, seed=4, target_high=2)
    labels = Labels(target="answer")
    chosen = [n for part, _ in inference_batches(encoded, labels.probabilities(encoded)) for n in part]
    assert sorted(chosen) == list(range(36))


def test_an_update_is_that_of_the_code() -> None:
    config = FinetuneConfig(precision="fp32", lambda_lm=0.0, clip=0.01, warmup=0.3, steps=10)
    model = tiny("classify", 2)
    trainer = Trainer(model, l3(0), config.resolve(PAPER, examples=6))
    batch = whole_batch(random_examples([1] * 6, seed=7, target_high=2), Labels(target="class", names=["a", "b"]))
    parameters = dict(model.named_parameters())
    moments = {name: (np.zeros(p.shape), np.zeros(p.shape)) for name, p in parameters.items()}
    for update in range(10):
        before = {name: p.detach().double().numpy().copy() for name, p in parameters.items()}
        loss, _ = l3(0)(model, batch)
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        gradients = {
            name: np.zeros(p.shape) if g is None else g.double().numpy()
            for (name, p), g in zip(parameters.items(), found, strict=True)
        }
        norm = float(np.sqrt(sum((g**2).sum() for g in gradients.values())))
        result = trainer.update([batch])
        assert result.gradient_norm == pytest.approx(norm, rel=1e-4)
        x = (update + 1) / 10
        assert result.learning_rate == pytest.approx(6.25e-5 * (x / 0.3 if x <= 0.3 else 1) * (1 - x), abs=1e-12)
        step = result.learning_rate * np.sqrt(1 - 0.999 ** (update + 1)) / (1 - 0.9 ** (update + 1))
        for name, parameter in parameters.items():
            clipped = gradients[name] * min(1, 0.01 / norm)
            first, second = moments[name]
            moments[name] = (0.9 * first + 0.1 * clipped, 0.999 * second + 0.001 * clipped**2)
            decay = 0.01 if parameter.dim() >= 2 else 0.0
            moved = moments[name][0] / (np.sqrt(moments[name][1]) + 1e-8) + decay * before[name]
            after = parameter.detach().double().numpy()
            rounding = step * 2e-3 + 1.2e-7 * np.abs(before[name]).max()
            np.testing.assert_allclose(after - before[name], -step * moved, atol=rounding, err_msg=name)


def test_the_rate_is_the_papers_and_rises_for_narrower_models() -> None:
    def rate(config: FinetuneConfig, width: int, **record: Any) -> float:
        return config.peak_rate(ModelConfig(width=width, heads=1, **record))[0]

    assert rate(FinetuneConfig(), PAPER_WIDTH) == 6.25e-5
    rates = [rate(FinetuneConfig(), width) for width in (1_600, 768, 384, 320, 192, 128)]
    assert rates == sorted(rates)
    assert rate(FinetuneConfig(learning_rate=1e-3), 128) == 1e-3
    assert rate(FinetuneConfig(), 128, transfer_rate=5e-5) == 5e-5
    assert FinetuneConfig().epochs_for(9, ModelConfig(transfer_epochs=4)) == 4


@pytest.mark.parametrize(
    ("examples", "updates"), [(9, 60), (180, 60), (640, 160), (1_800, 456), (4_000, 500), (64_000, 6_000)]
)
def test_few_rows_are_read_more_often_than_three_times(examples: int, updates: int) -> None:
    assert FinetuneConfig().resolve(PAPER, examples=examples).steps == updates
    one = FinetuneConfig(epochs=1).resolve(PAPER, examples=examples)
    assert one.steps == -(-examples // 32)
