"""Pre-training: from a recipe and a tokens folder to a run folder.

`objectives` has the losses. A run folder has `config.toml` (resolved), `metrics.jsonl`, `checkpoints/` and, at the
end, `model/`: the weights with the lowest held-out loss. The same command, run again, resumes from the last
checkpoint; ranks, micro-batch, device and compilation may change then, keys that decide the result may not.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from headwater import shipped
from headwater.display import byte_size, counted
from headwater.errors import FolderError, UsageError, resumable
from headwater.model import IGNORE, build_model, load_model, save_description, save_model
from headwater.pretraining.masking import Masking
from headwater.pretraining.objectives import l1, masked
from headwater.pretraining.recipe import (
    PretrainConfig,
    resolve,
    tokenizer_of,
)
from headwater.pretraining.samples import write_sample
from headwater.pretraining.tokens.pack import TOKEN_PARTS
from headwater.pretraining.tokens.sampler import Sampler, TokenBatch, TokenStream
from headwater.storage import (
    INTERACTIVE,
    SILENT,
    Input,
    Manifest,
    Progress,
    Stage,
    folder_lock,
    has_manifest,
    open_folder,
    read_manifest,
)
from headwater.training import (
    CHECKPOINTS,
    Measurement,
    Objective,
    OnUpdate,
    Ranks,
    Run,
    Trainer,
    diverged,
    process_group,
)

# Nats above the loss of guessing. Untrained models have up to 0.5.
_DIVERGED = 1.0
# Nats by which the held-out loss exceeds its lowest and the training loss where a text is learned by heart.
_BY_HEART = 0.5
# Repeated text is worth nearly as much as new text up to four passes, and little beyond sixteen (Muennighoff et
# al. 2023, "Scaling data-constrained language models", section 5).
MANY_PASSES = 8
_LENGTH = ("steps",)  # what may change in place
# (model, step) -> figures for the journal
MoreFigures = Callable[[Any, int], dict[str, float]]


def pretrain(
    config: PretrainConfig,
    tokens: Path,
    out: Path,
    *,
    more_figures: MoreFigures | None = None,
    on_update: OnUpdate | None = None,
    progress: Progress = INTERACTIVE,
) -> Path:
    """Train, or resume training, and write `out`; return the model folder `out/model`.

    `more_figures` is called with the model and the step after every update, on the first rank, and returns figures
    for metrics.jsonl, such as zero-shot scores. `on_update` is called after every update with its line of
    metrics.jsonl.

    Under torchrun every rank calls this; the first one writes. Raises TrainingError if the loss is not finite (the
    state before it is kept) or another rank is gone, KeyboardInterrupt after Ctrl-C or SIGTERM (a checkpoint is
    written first).
    """
    with process_group(config.device) as ranks:
        unresolved, begun = config, _begun(out)
        packed = ranks.on_first(lambda: open_folder(tokens, "tokens"))
        config = resolve(unresolved, tokens, ranks, begun, packed)
        # Ranks on different machines use the first one's precision.
        config = config.model_copy(update={"precision": ranks.broadcast(config.precision)})
        model_folder = out / "model"
        if not ranks.is_first:
            if not ranks.broadcast(None):
                _train(config, tokens, out, ranks, SILENT)
            return model_folder
        stage = _stage(config, tokens, out)
        with resumable(), ExitStack() as lock:
            if is_longer := bool(stage.changed(_LENGTH)):
                lock.enter_context(folder_lock(out))  # another process may train it
                _lengthen(stage, progress)
            is_complete = stage.is_complete(progress)
            if not is_complete:
                stage.begin()
            ranks.broadcast(is_complete)
            if is_complete:
                return model_folder
            if not is_longer:
                lock.enter_context(folder_lock(out))
            config.save(out / "config.toml")
            for name, text in describe_run(unresolved, config, packed).items():
                progress.note(f"{name.capitalize()}: {text}")
            _train(config, tokens, out, ranks, progress, more_figures, on_update)
            for name in ("config.toml", "metrics.jsonl"):
                if not (out / name).is_file():
                    raise FolderError(f"{out / name} is missing", repair="Run the same command again")
            # Only these: users and trackers may write other files there, such as a log of this process.
            stage.finish(only=("config.toml", "metrics.jsonl", "model"))
        return model_folder


def _begun(out: Path) -> PretrainConfig | None:
    """Return the recipe of an unfinished run in `out`, or None if there is no run."""
    recipe = out / "config.toml"
    if not recipe.exists() or not has_manifest(out) or read_manifest(out).kind != "run":
        return None
    return PretrainConfig.load(recipe)


def _stage(config: PretrainConfig, tokens: Path, out: Path) -> Stage:
    return Stage(
        out,
        kind="run",
        config=config.deciding(),
        inputs=_run_inputs(config, tokens, out),
        measured=("changes",),
    )


def _run_inputs(config: PretrainConfig, tokens: Path, out: Path) -> dict[str, Path | Input]:
    """Return the folders that decide the result of the run in `out`, by their roles.

    A run that has begun recorded the model that it continues from: that model may be gone or newer by now.
    """
    if config.init_from is None:
        return {"tokens": tokens}
    recorded = [] if not has_manifest(out) else [i for i in read_manifest(out).inputs if i.role == "model"]
    begun_from = next((i for i in recorded if _names(config.init_from, i.path_from(out))), None)
    return {"tokens": tokens, "model": begun_from or shipped.resolve(config.init_from)}


def _names(initial: str, model: Path) -> bool:
    """Return whether `initial` (a folder, a run, or `RUN@STEP`) names the folder `model`, which may be gone."""
    run, _, step = initial.rpartition("@")
    if run and (number := shipped.step_of(step)) is not None:
        return (Path(run) / CHECKPOINTS / f"step-{number:08d}").resolve() == model.resolve()
    return model.resolve().is_relative_to(Path(initial).resolve())


def _lengthen(stage: Stage, progress: Progress) -> None:
    """Give the run in `stage.out`, which is locked, more updates if it differs from `stage` only in their number.

    The manifest records each change with the update at which it was made and the command until then. The model of
    a finished run is kept as `model-STEPS`. Raises UsageError for fewer updates, FolderError if the checkpoints of
    a finished run are gone.
    """
    if not (changed := stage.changed(_LENGTH)):
        return
    out, before, steps = stage.out, changed["steps"], stage.config["steps"]
    manifest, checkpoints = read_manifest(out), shipped.list_checkpoints(out)
    if steps < before:
        raise UsageError(
            f"steps = {steps:,}, and the run in {out} has steps = {before:,}",
            expected=f"at least {before:,}",
            repair=f"Leave steps out, or branch from a checkpoint: --from {shlex.quote(str(out))}@STEP --out NEW",
        )
    if manifest.complete and not checkpoints:
        raise FolderError(
            f"the checkpoints of {out} are gone, and its optimizer's state with them",
            repair=f"Continue its model in a new run: --from {shlex.quote(str(out))} --out NEW",
        )
    if manifest.complete and has_manifest(out / "model"):
        (out / "model").rename(out / f"model-{before}")
        progress.note(f"the model of the shorter run is now {out / f'model-{before}'}")
    done = shipped.step_of(checkpoints[-1].name) if checkpoints else 0
    entry = {"at": done, "command": manifest.command, **changed}
    stage.config["changes"] = [*manifest.config.get("changes", []), entry]
    stage.reopen()
    progress.note(f"{out} continues from update {done:,} with steps {before:,} → {steps:,}")


def build_run(config: PretrainConfig, tokens: Path, out: Path | None, ranks: Ranks, progress: Progress) -> Run:
    """Return the run of a resolved recipe: its model on this rank's device, its trainer and its data.

    out: the run's folder; None for a run in memory.
    """
    assert config.micro_batch is not None
    packed = read_manifest(tokens)  # `resolve` has checked the folder
    masking, own = None, tokenizer_of(config.architecture, tokens)
    if config.architecture.is_masked:
        assert own.mask is not None
        masking = Masking(own.mask, own.vocabulary_size, config.seed)
    train, held_out = (TokenStream(tokens, part, config.window, packed, masking) for part in TOKEN_PARTS)
    # Weights of a run that has begun are read from its own checkpoint.
    trainer = _build_trainer(config, ranks, begun=out is not None and bool(shipped.list_checkpoints(out)))
    sampler = Sampler(train, config.batch_size, config.micro_batch, config.seed, ranks.rank, ranks.count)

    def describe(folder: Path) -> None:
        save_description(config.architecture, folder, tokenizer=own)

    def validate() -> Measurement:
        loss = held_out_loss(trainer, held_out, config)
        return Measurement({"validation_loss": loss}, quality=(-loss,))

    return Run(
        trainer=trainer,
        config=config,
        source=sampler,
        validate=validate,
        out=out,
        name="pre-training",
        progress=progress,
        describe=describe,
        identity="" if out is None else _identity(out),
        highest_loss=math.log(config.architecture.vocabulary) + _DIVERGED,
    )


def _identity(out: Path) -> str:
    """Return a hash of what decides the result of the run in `out`, except its length; empty without a run."""
    if not has_manifest(out):
        return ""
    manifest = read_manifest(out)
    recipe = {key: value for key, value in manifest.config.items() if key not in (*_LENGTH, "changes")}
    inputs = [(entry.role, entry.identity) for entry in manifest.inputs]
    return hashlib.sha256(json.dumps([recipe, manifest.seed, inputs], sort_keys=True).encode()).hexdigest()[:16]


def _build_trainer(config: PretrainConfig, ranks: Ranks, *, begun: bool) -> Trainer:
    """Return the trainer of the recipe's model, new or trained before, and its objective."""
    model = build_model(config.architecture, seed=config.seed)
    if config.init_from is not None and not begun:
        model.load_state_dict(load_model(shipped.resolve(config.init_from)).state_dict())
    model.to(ranks.device)
    objective: Objective = masked
    if not config.architecture.is_masked:  # an architecture that was registered may have its own
        objective = getattr(model, "objective", None) or l1
    sharded = config.shard and ranks.count > 1  # one rank has all of the model anyway
    return Trainer(
        model,
        objective,
        config,
        ranks=ranks,
        sharded=sharded,
        recompute=config.recompute == "full" or (config.recompute == "auto" and sharded),
        muon=config.optimizer == "muon",
    )


@torch.no_grad()
def held_out_loss(trainer: Trainer, stream: TokenStream, config: PretrainConfig) -> float:
    """Return the mean negative log-likelihood of a token, in nats, over the same held-out windows each time."""
    assert config.micro_batch is not None
    ranks = trainer.ranks
    count = min(config.validation_windows, stream.windows)
    # In float64: float32 cannot represent all integers above 2^24, and the last index could be out of range.
    windows = torch.linspace(0, stream.windows - 1, count, dtype=torch.float64).round().long().numpy()
    shares = [windows[rank :: ranks.count] if count >= ranks.count else windows for rank in range(ranks.count)]
    sums = torch.zeros(2, dtype=torch.float64)
    trainer.model.eval()
    for start in range(0, len(shares[0]), config.micro_batch):
        mine = shares[ranks.rank][start : start + config.micro_batch]
        # Sharded ranks gather each block together: one that has read its share takes part with weight 0.
        ids, targets = stream.batch(mine if len(mine) else windows[:1])
        seen = (targets != IGNORE).float() * float(len(mine) > 0)
        loss, _ = trainer.loss(TokenBatch(ids, targets, seen).to(ranks.device))
        sums += torch.tensor([float(loss), float(seen.sum())], dtype=torch.float64)
    total = sums.float().to(ranks.device)
    ranks.sum_([total])
    loss_sum, token_count = total.tolist()
    return float(loss_sum / token_count)


def _require_learning(run: Run, config: PretrainConfig, progress: Progress) -> None:
    """Raise TrainingError if the run diverged: training loss and best held-out loss are far above guessing.

    A run whose training loss fell while the held-out loss rose learned its text by heart, and is warned of.
    """
    assert run.highest_loss is not None
    curve = run.state.curve
    best = min(entry["validation_loss"] for entry in curve)
    last, trained = curve[-1]["validation_loss"], curve[-1]["training"]["loss"]
    if best > run.highest_loss and trained > run.highest_loss:
        raise diverged("held-out loss", best, run.highest_loss, config.learning_rate)
    if (last > best + _BY_HEART and trained < last - _BY_HEART) or best > run.highest_loss:
        progress.note(
            f"Warning: the text is learned by heart: the training loss is {trained:.2f}, the held-out loss "
            f"{last:.2f}. The model is the best state that was measured, with {best:.2f}. Gather more text, use "
            f"fewer updates, or measure more often: --set validate_every={max(1, config.validate_every // 10)}"
        )


def _train(
    config: PretrainConfig,
    tokens: Path,
    out: Path,
    ranks: Ranks,
    progress: Progress,
    more_figures: MoreFigures | None = None,
    on_update: OnUpdate | None = None,
) -> None:
    """Train, and write the weights with the lowest held-out loss as a model folder; every rank calls this."""
    run = build_run(config, tokens, out, ranks, progress)
    run.on_update = on_update

    def after_update() -> dict[str, float]:
        model, step = run.trainer.model, run.trainer.step
        if ranks.is_first and config.sample_every and step % config.sample_every == 0:
            write_sample(model, step, config, tokenizer_of(config.architecture, tokens), out, progress)
        return {} if more_figures is None else more_figures(model, step)

    run.more_figures = after_update
    run.train()
    _require_learning(run, config, progress)
    run.restore_best()
    weights = run.trainer.full_weights()
    if ranks.is_first:
        step = config.steps if run.state.best_step is None else run.state.best_step
        _write_model(config, tokens, out / "model", weights, step)


def _write_model(
    config: PretrainConfig, tokens: Path, out: Path, weights: dict[str, torch.Tensor], step: int
) -> None:
    """Write the model folder of a run unless it is complete."""
    model = build_model(config.architecture, device="meta")
    model.load_state_dict(weights, assign=True)
    inputs = _run_inputs(config, tokens, out.parent)
    if isinstance(begun_from := inputs.get("model"), Input) and not Path(begun_from.path).is_absolute():
        inputs["model"] = begun_from.model_copy(update={"path": f"../{begun_from.path}"})
    stage = Stage(
        out,
        kind="model",
        config=config.architecture.to_dict() | {"step": step, "seed": config.seed},
        inputs=inputs,
    )
    if not stage.is_complete():
        with stage.write() as work:
            save_model(model, work, tokenizer=tokenizer_of(config.architecture, tokens))


def describe_run(unresolved: PretrainConfig, config: PretrainConfig, packed: Manifest) -> dict[str, str]:
    """Return what a run computes, reads and learns with, and a warning if it will learn little.

    unresolved: the recipe before it was resolved; packed: the manifest of its tokens.
    """
    tokens = packed.config["counts"]["train"]["tokens"]
    passes = config.steps * config.batch_size * config.window / tokens
    rate = f"{config.learning_rate:g}"
    if config.warmup_steps >= 1:
        rate += f" after a rise over {counted(round(config.warmup_steps), 'update')}"
    if config.warmup_steps > config.steps:
        reached = config.learning_rate * config.steps / config.warmup_steps
        rate += f"; the run ends at {reached:.3g}, because its warmup_steps are more than its steps"
    saved = 4 * (2 if config.optimizer == "muon" else 3) * config.architecture.parameter_count
    rows = {
        "precision": config.precision,
        "the text": f"{passes:,.{1 if passes < 10 else 0}f} passes over {tokens:,} tokens",
        "learning rate": f"{rate}, schedule {config.schedule}",
        "disk": f"{counted(config.keep, 'checkpoint')} of {byte_size(saved)} and the best one",
    }
    if config.steps < unresolved.warmup_steps:
        rows["warning"] = (
            f"{counted(config.steps, 'update')} read {tokens:,} tokens {passes:,.1f} times, fewer than the "
            f"recipe's warmup_steps = {unresolved.warmup_steps:g}: the model will learn little. Use more text or "
            "more passes over it, or continue a trained model: --from gpt2-mini"
        )
    elif passes >= MANY_PASSES + 0.5:  # whole updates are a little more than the passes of `epochs`
        rows["warning"] = (
            f"the text is read {passes:,.0f} times; beyond about {MANY_PASSES} passes a model learns it by heart. "
            f"Gather more text, or use --set epochs={MANY_PASSES} or a smaller model"
        )
    return rows
