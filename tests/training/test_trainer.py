"""One update does what it says: accumulation, precision, the optimizer's two forms, and what it refuses."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from headwater.errors import TrainingError
from headwater.model import Backend, build_model, default_backend, preset
from headwater.pretraining import TokenBatch, l1
from headwater.training import Objective, Ranks, TrainConfig, Trainer, resolve_precision
from headwater.training import trainer as trainer_module
from headwater.training.optimizer import Optimizer, master_weights


def batch_of(sequences: int, seed: int = 0) -> TokenBatch:
    tokens = torch.randint(0, 61, (sequences, 13), generator=torch.Generator().manual_seed(seed))
    weights = torch.full((sequences, 12), 1.0 / (12 * sequences))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], weights)


def split(batch: TokenBatch, size: int) -> list[TokenBatch]:
    parts = zip(*(t.split(size) for t in (batch.ids, batch.targets, batch.weights)), strict=True)
    return [TokenBatch(*part) for part in parts]


def tiny_trainer(backend: Backend | None = None, *, recompute: bool = False, **changes: Any) -> Trainer:
    model = build_model(preset("gpt2-pico", vocabulary=61, context=12, width=32, init_deviation=0.02), seed=3)
    config = TrainConfig(**({"steps": 20, "precision": "fp32"} | changes))
    return Trainer(model, l1, config, backend=backend, recompute=recompute)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_accumulation_equals_the_large_batch(size: int) -> None:
    whole, parts = tiny_trainer(), tiny_trainer()
    for step in range(3):
        batch = batch_of(8, seed=step)
        together, apart = whole.update([batch]), parts.update(split(batch, size))
        assert apart.loss == pytest.approx(together.loss, rel=1e-6)
        assert apart.gradient_norm == pytest.approx(together.gradient_norm, rel=1e-5)
    for name, weight in whole.full_weights().items():
        torch.testing.assert_close(parts.full_weights()[name], weight, rtol=0, atol=2e-5, msg=name)


def test_bfloat16_follows_float32_over_masters_in_float32() -> None:
    exact, rounded = tiny_trainer(learning_rate=1e-2), tiny_trainer(learning_rate=1e-2, precision="bf16")
    assert rounded.model.tokens.weight.dtype == torch.bfloat16
    for step in range(20):
        batch = batch_of(16, seed=step % 2)
        losses = [trainer.update([batch]).loss for trainer in (exact, rounded)]
        assert losses[1] == pytest.approx(losses[0], abs=0.03)
    assert losses[0] < 3.5  # it has learned much of the two batches (ln 61 = 4.1)
    assert all(weight.dtype == torch.float32 for weight in rounded.full_weights().values())


def test_what_has_trained_is_freed_when_it_is_let_go() -> None:
    trainer = tiny_trainer(precision="bf16")
    trainer.update([batch_of(8)])
    held = [weakref.ref(trainer.optimizer), weakref.ref(trainer.model.tokens.weight)]
    del trainer
    gc.collect()
    assert [thing() for thing in held] == [None, None]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("adam", ["standard", "original"])
def test_the_native_optimizer_equals_torchs(precision: str, adam: str) -> None:
    plain, native = (
        tiny_trainer(Backend(native=native), precision=precision, adam=adam, clip=0.1) for native in (False, True)
    )
    if not default_backend().native:
        pytest.skip("the native kernels are not built here")
    Backend().assign_to(native.model)  # the gradients are torch's
    # A weight that falls to the other side of a rounding to bfloat16 changes what follows a little.
    relative = 1e-6 if precision == "fp32" else 1e-3
    for step in range(4):
        batches = split(batch_of(8, seed=step), 8 if step % 2 else 3)
        expected, got = plain.update(batches), native.update(batches)
        assert got.loss == pytest.approx(expected.loss, rel=relative)
        assert got.gradient_norm == pytest.approx(expected.gradient_norm, rel=relative)
    for name, tensor in plain.optimizer.state().items():
        tolerance = 1e-5 if precision == "fp32" else 1e-3
        torch.testing.assert_close(native.optimizer.state()[name], tensor, rtol=1e-3, atol=tolerance, msg=name)


@pytest.mark.parametrize("begun", ["fp32", "bf16"])
def test_a_run_keeps_the_precision_that_it_began_with(begun: Any) -> None:
    config = TrainConfig(precision="auto")
    assert resolve_precision(config, TrainConfig(precision=begun), torch.device("cpu")).precision == begun


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_loss_that_is_not_finite_changes_no_state(what: str) -> None:
    trainer = tiny_trainer()
    trainer.update([batch_of(4)])
    before = {name: weight.clone() for name, weight in trainer.full_weights().items()}
    poisoned = batch_of(4)
    if what == "loss":
        poisoned.weights[0, 0] = float("nan")
    else:
        trainer.model.tokens.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainingError, match=r"update 2.*learning rate.*batch.*precision.*data"):
        trainer.update([poisoned])
    assert trainer.step == 1
    assert all(torch.equal(before[name], weight) for name, weight in trainer.full_weights().items())


def test_dropout_is_a_function_of_seed_and_step() -> None:
    def losses(seed: int = 1, rank: int = 0, parts: int = 1) -> list[float]:
        """Return the losses of three updates on one batch, in equal micro-batches, that change no weight."""
        model = build_model(preset("gpt1-nano", vocabulary=61, context=12, width=32, heads=2), seed=3)
        config = TrainConfig(steps=20, precision="fp32", seed=seed, learning_rate=1e-30)
        trainer = Trainer(model, l1, config, ranks=Ranks(rank=rank))
        batch = batch_of(4)
        part = TokenBatch(batch.ids, batch.targets, batch.weights / parts)
        return [trainer.update([part] * parts).loss for _ in range(3)]

    usual = losses()
    torch.rand(17)  # whatever else drew random numbers in the process
    assert losses() == usual
    assert len(set(usual)) == 3
    for other in (losses(seed=2), losses(rank=1), losses(parts=2)):
        assert not set(usual) & set(other)


def test_trainings_in_threads_do_not_change_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes between the seed of the first one's update and its dropout, or waits for its end."""

    def loss_of(seed: int, objective: Objective) -> float:
        model = build_model(preset("gpt1-nano", vocabulary=61, context=12, width=32, heads=2), seed=3)
        return Trainer(model, objective, TrainConfig(precision="fp32", seed=seed)).update([batch_of(4)]).loss

    class Turns:
        """The lock of the random state; says when the second training waits for it."""

        def __enter__(self) -> None:
            if threading.current_thread() is thread:
                second_came.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def first(model: Any, batch: TokenBatch) -> Any:
        thread.start()
        assert second_came.wait(60)
        found = l1(model, batch)
        first_drew.set()
        return found

    def second(model: Any, batch: TokenBatch) -> Any:
        found = l1(model, batch)
        second_came.set()
        assert first_drew.wait(60)
        return found

    alone = [loss_of(seed, l1) for seed in (1, 2)]
    lock, second_came, first_drew = threading.Lock(), threading.Event(), threading.Event()
    together: list[float] = []
    thread = threading.Thread(target=lambda: together.append(loss_of(2, second)))
    monkeypatch.setattr(trainer_module, "_RANDOM_STATE", Turns(), raising=False)
    before = torch.get_rng_state()
    together.insert(0, loss_of(1, first))
    thread.join(60)
    assert together == alone
    assert torch.equal(torch.get_rng_state(), before)


def test_original_adam_is_gpt1s_arithmetic() -> None:
    """Radford et al. 2018, section 4.1, in NumPy as their code orders it: ε outside the correction of v."""
    rng = np.random.default_rng(1)
    matrix, vector = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    module = torch.nn.Linear(3, 4, bias=False)
    module.gain = torch.nn.Parameter(torch.from_numpy(vector.copy()))
    module.weight.data = torch.from_numpy(matrix.copy())
    weights_of = master_weights(module, torch.float32)
    config = TrainConfig(weight_decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-3, adam="original")
    optimizer = Optimizer(weights_of, config)
    weights = {"weight": matrix.astype(np.float64), "gain": vector.astype(np.float64)}
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    for update in range(1, 6):
        optimizer.clear_gradients()
        rate = 0.01 / update
        for name, parameter in module.named_parameters():
            gradient = rng.normal(size=parameter.shape)
            parameter.grad = torch.from_numpy(gradient.astype(np.float32))
            first, second = moments[name]
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            moments[name] = first, second
            step_size = rate * np.sqrt(1 - 0.999**update) / (1 - 0.9**update)
            decay = 0.01 * weights[name] if parameter.dim() >= 2 else 0.0
            weights[name] = weights[name] - step_size * (first / (np.sqrt(second) + 1e-3) + decay)
        optimizer.step(rate)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), weights[name], rtol=2e-5, atol=1e-6)


def test_recomputation_changes_no_bit() -> None:
    kept, recomputed = tiny_trainer(), tiny_trainer(recompute=True)
    for step in range(2):
        expected, got = kept.update([batch_of(4, seed=step)]), recomputed.update([batch_of(4, seed=step)])
        assert got == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_muon_updates_inner_matrices_and_resumes_to_the_bit(precision: Any) -> None:
    def trainer() -> Trainer:
        model = build_model(preset("gpt2-pico", vocabulary=61, context=12, width=32), seed=3)
        return Trainer(model, l1, TrainConfig(steps=20, precision=precision, learning_rate=1e-2), muon=True)

    whole = trainer()
    losses = [whole.update([batch_of(8)]).loss for _ in range(6)]
    assert losses[-1] < losses[0] - 0.5
    state = whole.optimizer.state()
    by_adam = {name.removeprefix("second_moment.") for name in state if name.startswith("second_moment.")}
    inner = {name for name, m in whole.model.named_parameters() if m.dim() == 2 and name.startswith("blocks.")}
    assert set(whole.optimizer.names) - by_adam == inner
    resumed = trainer()
    for name, tensor in resumed.optimizer.state().items():
        tensor.copy_(state[name])
    resumed.optimizer.load(whole.step)
    for trained in (whole, resumed):
        trained.update([batch_of(8, seed=1)])
    for name, weight in whole.full_weights().items():
        assert torch.equal(resumed.full_weights()[name], weight), name
