"""Pre-training: L1 or the masked objective over unlabelled text, from recipe and tokens folder to a run folder.

L1(U) = Σ log P(u_i | u_{i−k}, …, u_{i−1}) (GPT-1 section 3.1, equation 1; GPT-2 section 2, equation 1), here as
the mean negative log-likelihood a token. A model with full attention is trained on the masked objective (BERT,
Devlin et al. 2019, section 3.1): the mean negative log-likelihood of the tokens that `masking` hid. A run
folder holds `config.toml` (resolved), `metrics.jsonl`, `checkpoints/` and, at its end, `model/`: the weights
with the lowest held-out loss. The same command, run again, goes on from the last checkpoint; how it computes
(ranks, micro-batch, device, compilation) may differ then, what it computes may not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from headwater import shipped
from headwater.config import Layer
from headwater.errors import MismatchError, UsageError, resumable
from headwater.model import build_model, preset
from headwater.model.config import Faithful, ModelConfig
from headwater.model.io.folder import load_config, load_model, save_model
from headwater.model.loss import IGNORE
from headwater.pretrain.cost import fitting_tokens, require_memory, training_flops_a_token
from headwater.pretrain.masking import MaskedSampler, MaskedStream, Masking, Pairing
from headwater.pretrain.objectives import both_directions, l1, masked
from headwater.pretrain.tokens.sampler import Sampler, TokenBatch, TokenStream, too_short
from headwater.storage.lock import folder_lock
from headwater.storage.progress import SILENT, Progress
from headwater.storage.provenance import MANIFEST, check_files, open_folder, read_manifest, record_files
from headwater.storage.stage import Stage
from headwater.tokenizer import Tokenizer
from headwater.train.loop import RETIRED, Objective, TrainConfig, Trainer, as_begun, choose_arithmetic
from headwater.train.parallel import Ranks, joined
from headwater.train.run import BatchSource, Measurement, OnUpdate, Run
from headwater.train.schedule import transfer_rate
from headwater.train.watch import Watch

# (model, step) -> figures for the journal
Follow = Callable[[Any, int], dict[str, float]]


class PretrainConfig(TrainConfig):
    """A pre-training recipe. With `init_from` and no learning rate, the rate goes by the model's width."""

    preset: str = "gpt2-mini"
    """Which model."""
    init_from: str | None = None
    """Trained model to continue from, a folder or one that ships; the tokens are packed with its tokenizer."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Keys of the model, which change the preset's."""
    faithful: Faithful = "code"
    """code: follow the authors' code where it does what the papers do not say; paper: the papers alone."""
    context: int | None = Field(default=None, ge=1)
    """Tokens of a training window; by default the preset's context."""
    epochs: float | None = Field(default=None, gt=0, le=1e9)
    """Passes over the training tokens, instead of steps."""
    cross_documents: bool = True
    """Whether attention reaches over the border between two documents."""
    next_sentence: bool = False
    """Read pairs of texts and predict whether the second follows the first, as BERT does; needs a masked model."""
    shard: bool = False
    """Share weights and optimizer among the ranks (FSDP)."""
    optimizer: Literal["adam", "muon"] = "adam"
    """muon: Muon for the matrices between embeddings and head. It is not the papers', and cannot be sharded."""
    recompute: Literal["auto", "none", "selective", "full"] = "auto"
    """Activations computed again in the backward pass; auto: full for a sharded model."""
    validation_windows: int = Field(default=256, ge=1)
    """Most windows that a held-out loss is measured on."""

    @classmethod
    def build(cls, *layers: Mapping[str, Any], source: str = "configuration") -> Self:
        """As every configuration; of `steps` and `epochs`, which are one choice, the last layer's holds."""
        other = {"steps": "epochs", "epochs": "steps"}
        kept: list[Mapping[str, Any]] = []
        for place, layer in enumerate(layers, 1):
            later = {key for after in layers[place:] for key in after}
            keys = {key: value for key, value in layer.items() if other.get(key) not in later}
            kept.append(Layer(keys, layer.source if isinstance(layer, Layer) else source))
        return super().build(*kept, source=source)

    @model_validator(mode="after")
    def _says_its_length_once(self) -> Self:
        if self.epochs is not None and "steps" in self.model_fields_set:
            raise ValueError(f"steps = {self.steps} and epochs = {self.epochs:g} both say how long to train")
        return self

    def deciding(self) -> dict[str, Any]:
        """As of every training; the model to continue from is an input of the folder, by its content."""
        return {key: value for key, value in super().deciding().items() if key != "init_from"}

    @property
    def architecture(self) -> ModelConfig:
        """The model that this recipe trains."""
        return preset(self.preset, faithful=self.faithful, **self.model)

    @property
    def window(self) -> int:
        """Tokens of a training window."""
        return self.context or self.architecture.context


def resolve(
    config: PretrainConfig, tokens: Path, ranks: Ranks, begun: PretrainConfig | None = None
) -> PretrainConfig:
    """The recipe with nothing left open: the whole model, the window, updates, micro-batch and arithmetic.

    An "auto" that this device decides is as in `begun`, the recipe that a run began with, if there is one: the run
    may have begun on another machine. Raises UsageError, DataError or MismatchError when recipe, tokens and ranks
    do not go together: here, before a folder is begun, so that the same --out serves once it is repaired.
    """
    packed = open_folder(tokens, "tokens")
    vocabulary = int(packed.config["vocabulary_size"])
    if config.init_from is not None:
        config = _from_model(config, config.init_from, tokens)
    if config.next_sentence:
        config = _with_pairs(config)
    if config.architecture.is_masked:
        vocabulary = _tokenizer(config.architecture, tokens).vocabulary_size
    changes: dict[str, Any] = {"vocabulary": vocabulary}
    # A window shorter than the context of a trained model leaves its rows of positions as they are.
    for key in ("context", "dropout") if config.init_from is None else ():
        if getattr(config, key) is not None:
            changes[key] = getattr(config, key)
    model = preset(config.preset, faithful=config.faithful, **(changes | config.model))
    if config.dropout is not None and config.dropout != model.dropout:
        raise UsageError(
            f"dropout = {config.dropout} and model.dropout = {model.dropout} are one thing",
            repair="Give one of them, once; a run that has begun keeps its own",
        )
    if model.vocabulary < vocabulary:
        raise MismatchError(
            f"the model has {model.vocabulary:,} vocabulary rows, and the tokens in {tokens} need {vocabulary:,}",
            repair="Leave model.vocabulary out, or pack with the model's own tokenizer",
        )
    window = config.context or model.context
    if window > model.context:
        raise UsageError(
            f"context = {window} is longer than model.context = {model.context}",
            repair=f"Use --set context={model.context}, or leave model.context out",
        )
    for part, count in packed.config["counts"].items():
        if count["tokens"] <= window:
            raise too_short(tokens, packed, part, window)
    if not config.cross_documents:
        if model.is_masked or model.is_recurrent:
            raise UsageError(
                "cross_documents = false is only for causal attention", repair="Leave cross_documents out"
            )
        _end_of_text(tokens)
    if config.batch_size % ranks.count:
        raise UsageError(
            f"batch_size = {config.batch_size} cannot be divided among {ranks.count} ranks",
            repair=f"Use a multiple of {ranks.count}",
        )
    if config.shard and config.optimizer == "muon":
        raise UsageError(
            "optimizer = muon needs whole matrices, and shard = true divides them", repair="Leave one of them out"
        )
    require_memory(model, ranks, sharded=config.shard)
    steps = config.steps
    if config.epochs is not None:
        windows = TokenStream(tokens, "train", window).windows
        steps = max(1, math.ceil(config.epochs * windows / config.batch_size))
    # A resumed run keeps its micro-batch: another one rounds otherwise.
    micro_batch = config.micro_batch or (begun.micro_batch if begun else None)
    if micro_batch is None:
        micro_batch = max(1, fitting_tokens(model, ranks, sharded=config.shard) // window)
    config = choose_arithmetic(as_begun(config, begun), ranks.device)
    return config.model_copy(
        update={
            "model": model.to_dict(),
            "context": window,
            "dropout": model.dropout,
            "steps": steps,
            "epochs": None,
            "micro_batch": min(micro_batch, config.batch_size // ranks.count),
        }
    )


def _with_pairs(config: PretrainConfig) -> PretrainConfig:
    """Return the recipe with the parts of the model that next-sentence prediction needs."""
    found = config.architecture
    if not found.is_masked or (config.init_from is not None and not found.next_sentence):
        raise UsageError(
            "next_sentence was asked of a model that is not masked, or was trained without it",
            expected="a masked preset, as bert-mini, or a model that was trained with next_sentence",
        )
    parts = {"next_sentence": True, "segments": max(2, found.segments)}
    return config.model_copy(update={"model": parts | config.model})


def _from_model(config: PretrainConfig, initial: str, tokens: Path) -> PretrainConfig:
    """Return the recipe with the shape of the model to continue from and, where none is given, its learning rate.

    Raises MismatchError where the tokens were packed with another tokenizer, UsageError for another shape.
    """
    folder = shipped.resolve(initial)
    found = load_config(folder)
    shape = found.to_dict()
    if changed := [key for key, value in config.model.items() if key != "dropout" and shape.get(key) != value]:
        raise UsageError(
            f"model.{changed[0]} = {config.model[changed[0]]} is not as in {initial}: {shape.get(changed[0])}",
            repair=f"Leave model.{changed[0]} out, or train a new model without --from",
        )
    own, packed = Tokenizer.of_model(folder, found.vocabulary), Tokenizer.load(tokens / "tokenizer")
    if own is not None and own.identity != packed.identity:
        raise MismatchError(
            f"the tokens in {tokens} were packed with another tokenizer than the one of {initial}",
            repair=f"Pack the corpus with it: headwater pack CORPUS --tokenizer {initial} --out DIR",
        )
    dropout = {} if config.dropout is None else {"dropout": config.dropout}
    update: dict[str, Any] = {"model": shape | dropout | config.model}
    if "learning_rate" not in config.model_fields_set:
        update["learning_rate"] = transfer_rate(found.width)
    return config.model_copy(update=update)


def pretrain(
    config: PretrainConfig,
    tokens: Path,
    out: Path,
    *,
    follow: Follow | None = None,
    on_update: OnUpdate | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Train, or go on training, and write `out`; returns the model folder `out/model`.

    `follow` is given the model and the step after every update, on the first rank, and returns figures for
    metrics.jsonl, as zero-shot scores. `on_update` is called after every update with its line of metrics.jsonl.

    Under torchrun every rank calls this; the first one writes. Raises TrainingError when the loss is not
    finite (the state before it is kept) or another rank is gone, KeyboardInterrupt after Ctrl-C or SIGTERM (a
    checkpoint is written first).
    """
    with joined(config.device) as ranks:
        config = resolve(config, tokens, ranks, _begun(out))
        # Ranks on machines of several kinds take the first one's precision.
        config = config.model_copy(update={"precision": ranks.share(config.precision)})
        return _pretrain(config, tokens, out, ranks, progress, follow, on_update)


def _begun(out: Path) -> PretrainConfig | None:
    """The recipe that the run in `out` began with; None where no run is, whatever else there is."""
    recipe = out / "config.toml"
    if not recipe.exists() or not (out / MANIFEST).exists() or read_manifest(out).kind != "run":
        return None
    return PretrainConfig.load_written(recipe)


def _pretrain(
    config: PretrainConfig,
    tokens: Path,
    out: Path,
    ranks: Ranks,
    progress: Progress,
    follow: Follow | None,
    on_update: OnUpdate | None,
) -> Path:
    stage = Stage(
        out,
        kind="run",
        config=config.deciding(),
        inputs=_inputs(config, tokens),
        seed=config.seed,
        measured=RETIRED,
        defaults=PretrainConfig.defaults() | {"model": ModelConfig.defaults()},
    )
    model_folder = out / "model"
    if not ranks.is_first:
        if not ranks.share(None):
            _export(_train(config, tokens, out, ranks, SILENT), config, tokens, model_folder)
        return model_folder
    found = stage.begin()
    if found.complete:
        check_files(out, found)
        progress.note(f"{out} is complete already")
    ranks.share(found.complete)
    if found.complete:
        return model_folder
    with resumable(), folder_lock(out):
        config.save(out / "config.toml")
        progress.note(f"computes in {config.precision}")
        run = _train(config, tokens, out, ranks, progress, follow, on_update)
        _export(run, config, tokens, model_folder)
        # Not for what a person or a tracker writes beside them, as a log of this very process.
        stage.finish(record_files(out, only=("config.toml", "metrics.jsonl", "model")))
    return model_folder


def _inputs(config: PretrainConfig, tokens: Path) -> dict[str, Path]:
    """Return what a run is made from, by role."""
    model = {} if config.init_from is None else {"model": shipped.resolve(config.init_from)}
    return {"tokens": tokens} | model


def build_run(config: PretrainConfig, tokens: Path, out: Path, ranks: Ranks, progress: Progress) -> Run:
    """Return the run of a resolved recipe: its model on this rank's device, its trainer and its data."""
    assert config.micro_batch is not None
    train = TokenStream(tokens, "train", config.window)
    held_out = TokenStream(tokens, "validation", config.window)
    model = build_model(config.architecture, seed=config.seed)
    if config.init_from is not None:
        model.load_state_dict(load_model(shipped.resolve(config.init_from)).state_dict())
    model.to(ranks.device)
    sampler = Sampler(train, config.batch_size, config.micro_batch, config.seed, ranks.rank, ranks.count)
    source: BatchSource = sampler
    unread: TokenStream | MaskedStream = held_out
    if config.architecture.is_masked:
        tokenizer = _tokenizer(config.architecture, tokens)
        assert tokenizer.mask is not None
        masking = Masking(tokenizer.mask, tokenizer.vocabulary_size, config.seed)
        pairing = _pairing(tokenizer) if config.next_sentence else None
        source, unread = MaskedSampler(sampler, masking, pairing), MaskedStream(held_out, masking)
        objective: Objective = masked
    elif config.architecture.architecture == "bilstm":
        objective = both_directions
    else:
        objective = l1(None if config.cross_documents else _end_of_text(tokens))
    sharded = config.shard and ranks.count > 1  # one rank has all of the model anyway
    recompute = ("full" if sharded else "none") if config.recompute == "auto" else config.recompute
    trainer = Trainer(
        model,
        objective,
        config,
        ranks=ranks,
        sharded=sharded,
        recompute=recompute,
        muon=config.optimizer == "muon",
    )
    return Run(
        trainer=trainer,
        config=config,
        source=source,
        validate=lambda: _measure(held_out_loss(trainer, unread, config)),
        out=out,
        name="pre-training",
        progress=progress,
        flops_a_token=training_flops_a_token(config.architecture, config.window),
        watch=Watch(config.steps),
    )


def _measure(loss: float) -> Measurement:
    return Measurement({"validation_loss": loss}, rank=(-loss,))


@torch.no_grad()
def held_out_loss(trainer: Trainer, stream: TokenStream | MaskedStream, config: PretrainConfig) -> float:
    """Mean negative log-likelihood a token, in nats, over the same held-out windows each time."""
    assert config.micro_batch is not None
    ranks = trainer.ranks
    count = min(config.validation_windows, stream.windows)
    # In float64: from 2^24 windows on float32 misses whole numbers, at the end by one that is not there.
    windows = torch.linspace(0, stream.windows - 1, count, dtype=torch.float64).round().long().numpy()
    shares = [windows[rank :: ranks.count] if count >= ranks.count else windows for rank in range(ranks.count)]
    sums = torch.zeros(2, dtype=torch.float64)
    trainer.model.eval()
    for start in range(0, len(shares[0]), config.micro_batch):
        mine = shares[ranks.rank][start : start + config.micro_batch]
        # Sharded ranks gather each block together: one that has read its share goes along, and counts nothing.
        ids, targets = stream.batch(mine if len(mine) else windows[:1])
        seen = (targets != IGNORE).float() * float(len(mine) > 0)
        loss, _ = trainer.objective(trainer.model, TokenBatch(ids, targets, seen).to(ranks.device))
        sums += torch.tensor([float(loss), float(seen.sum())], dtype=torch.float64)
    total = sums.float().to(ranks.device)
    ranks.sum_([total])
    loss_sum, token_count = total.tolist()
    return float(loss_sum / token_count)


def _train(
    config: PretrainConfig,
    tokens: Path,
    out: Path,
    ranks: Ranks,
    progress: Progress,
    follow: Follow | None = None,
    on_update: OnUpdate | None = None,
) -> Run:
    run = build_run(config, tokens, out, ranks, progress)
    run.on_update = on_update
    if follow is not None:
        run.follow = lambda: follow(run.trainer.model, run.trainer.step)
    run.train()
    return run


def _export(run: Run, config: PretrainConfig, tokens: Path, folder: Path) -> None:
    """Write the weights with the lowest held-out loss as a model folder; every rank calls this."""
    run.restore_best()
    weights = run.trainer.full_weights()
    if not run.trainer.ranks.is_first:
        return
    model = build_model(config.architecture, device="meta")
    model.load_state_dict(weights, assign=True)
    stage = Stage(
        folder,
        kind="model",
        config=config.architecture.to_dict() | {"step": run.best["step"] if run.best else config.steps},
        inputs=_inputs(config, tokens),
        seed=config.seed,
        defaults=ModelConfig.defaults(),
    )
    if not stage.is_complete():
        with stage.write() as work:
            save_model(model, work, tokenizer=_tokenizer(config.architecture, tokens))


def _tokenizer(config: ModelConfig, tokens: Path) -> Tokenizer:
    """Return the tokenizer of the tokens folder; a masked model's has `[MASK]`, and the tokens of pairs."""
    tokenizer = Tokenizer.load(tokens / "tokenizer")
    if not config.is_masked:
        return tokenizer
    return tokenizer.with_mask().with_task_tokens() if config.next_sentence else tokenizer.with_mask()


def _pairing(tokenizer: Tokenizer) -> Pairing:
    start, delimiter, extract = tokenizer.start, tokenizer.delimiter, tokenizer.extract
    assert start is not None
    assert delimiter is not None
    assert extract is not None
    return Pairing(start, delimiter, extract)


def _end_of_text(tokens: Path) -> int:
    end_of_text = Tokenizer.load(tokens / "tokenizer").end_of_text
    if end_of_text is None:
        raise UsageError(
            "cross_documents = false needs an end-of-text token, and this tokenizer has none",
            repair="Leave cross_documents out, or use a tokenizer of kind gpt2",
        )
    return end_of_text
