"""A scale: every number of every experiment in one TOML file, its cost, and whether this machine can run it.

`mini` is for two cores, `small` for one GPU, `paper` is as published; they are in `scales/`. A scale can also be
the user's own TOML file. A model with the key `like` has the text and the recipe of the earlier model that it
names; the keys of its own table and recipe replace theirs.

The cost of training is computed before anything starts: floating-point operations as in `headwater.pretraining`,
memory of weights and optimizer, and the time at this machine's matmul rate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from headwater.config import Config, read_toml
from headwater.errors import ResourceError, UsageError, nearest

if TYPE_CHECKING:
    import torch

    from headwater.model import ModelConfig

Settings = TypeVar("Settings", bound=Config)

FOLDER = Path(__file__).parent / "scales"
_SECONDS_A_DAY = 86_400
# The share of the rate of large matmuls that training of small and middle-sized models reaches.
_REACHED = 0.4
# Operations a second of one H100 in bf16 at that share of its peak.
GPU_RATE = 4e14


class Rows(Config):
    """The numbers of rows of each part of a labelled set, evenly spaced; None: all."""

    train: int | None = Field(default=None, ge=1)
    validation: int | None = Field(default=None, ge=1)
    test: int | None = Field(default=None, ge=1)


class TextPlan(Config):
    """A training text: files in the data folder, a recipe of `corpus build` with changed keys, and the tokenizer.

    held_out: the share of documents (by the hash of their ids) for measuring perplexity, which no model trains on.
    validation: the share of the rest that chooses the checkpoint.
    """

    sources: tuple[str, ...]
    recipe: str = "plain"
    changes: dict[str, Any] = Field(default_factory=dict)
    tokenizer: Literal["gpt1", "gpt2"] = "gpt2"
    vocabulary: int = Field(default=4_096, ge=2)
    held_out: float = Field(default=0.05, gt=0, lt=1)
    validation: float = Field(default=0.02, gt=0, le=0.5)


class ModelPlan(Config):
    """A model to pre-train, once a seed: its text, and the recipe for `headwater pretrain`; or one that exists.

    snapshots: updates after which the weights are saved, for scores over training. model: a folder, or the name of
    a model that ships. It is the base of every seed's fine-tuning; text, recipe and snapshots are then not used.
    """

    text: str = ""
    recipe: dict[str, Any] = Field(default_factory=dict)
    snapshots: tuple[Annotated[int, Field(ge=1)], ...] = ()
    model: str = ""

    @field_validator("snapshots")
    @classmethod
    def _in_order(cls, snapshots: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(snapshots)))

    @model_validator(mode="before")
    @classmethod
    def _has_recipe_or_model(cls, table: Any) -> Any:
        if isinstance(table, dict) and table.get("model"):
            return {key: value for key, value in table.items() if key not in {"text", "recipe", "snapshots"}}
        if isinstance(table, dict) and not (table.get("text") and table.get("recipe")):
            raise ValueError("expected a text and a recipe, or a model")
        return table


class LabelledPlan(Config):
    """Fine-tuning: keys for `headwater finetune --set`, and the numbers of rows of each set."""

    recipe: dict[str, Any] = Field(default_factory=dict)
    """Keys of fine-tuning."""
    sets: dict[str, Rows] = Field(default_factory=dict)
    """The numbers of rows of each labelled set."""


class Scale(Config):
    """A whole scale."""

    name: str
    """The name of the scale."""
    about: str
    """Its purpose."""
    run: bool = True
    """False for a scale that is described and not run."""
    most_hours: float = Field(default=24.0, gt=0)
    """A scale that takes longer is refused."""
    seeds: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    """Seeds of every training, each once."""
    texts: dict[str, TextPlan]
    """Training texts, each a table."""
    models: dict[str, ModelPlan]
    """Models to pre-train, or that exist, each a table."""
    labelled: LabelledPlan = LabelledPlan()
    experiments: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Keys of single experiments."""

    @field_validator("seeds")
    @classmethod
    def _are_different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("expected different seeds: the spread over equal ones is zero")
        return seeds

    def settings(self, experiment: str, cls: type[Settings]) -> Settings:
        """Return the settings of an experiment."""
        return cls.build(self.experiments.get(experiment, {}), source=f"experiments.{experiment}")

    def with_base(self, name: str, model: str) -> Scale:
        """Return this scale with a model that exists in the place of the one that it pre-trains."""
        return self.model_copy(update={"models": {**self.models, name: ModelPlan(model=model)}})

    def identity(self, models: Collection[str]) -> str:
        """Return a hash of what results of some models depend on: seeds, models, their texts, and fine-tuning."""
        deciding = self.model_dump(mode="json", include={"seeds", "texts", "models", "labelled"})
        deciding["models"] = {name: plan for name, plan in deciding["models"].items() if name in models}
        read = {plan["text"] for plan in deciding["models"].values()}
        deciding["texts"] = {name: plan for name, plan in deciding["texts"].items() if name in read}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def changed(self) -> list[str] | None:
        """`KEY=VALUE` of each key that differs from Headwater's scale of the same name, except for `most_hours`.

        None if there is no such scale, or if a key that differs is a table.
        """
        shipped = shipped_scale(self.name)
        if shipped is None:
            return None
        there, own = (scale.model_dump(mode="json", exclude={"most_hours"}) for scale in (shipped, self))
        different = [key for key in own if own[key] != there[key]]
        if any(isinstance(own[key], dict) for key in different):
            return None
        return [f"{key}={json.dumps(own[key])}" for key in different]


@dataclass(frozen=True)
class Cost:
    """The cost of pre-training a scale: floating-point operations, and the memory of its largest model."""

    flops: float
    tokens: int
    largest: str
    parameters: int
    bytes: int

    def text(self) -> str:
        """Return `1.2e+19 floating-point operations over … tokens (0.3 GPU-days at 4e14 a second); …`."""
        days = self.flops / GPU_RATE / _SECONDS_A_DAY
        amount = f"{days:,.1f} GPU-days" if days >= 1 else f"{days * 24 * 60:,.2g} GPU-minutes"
        return (
            f"{self.flops:.1e} floating-point operations over {self.tokens:,} tokens ({amount} at 4e14 a second); "
            f"its largest model, {self.largest}, has {self.parameters:,} parameters and takes "
            f"{self.bytes / 1e9:.2g} GB for weights and optimizer"
        )


def load_scale(name_or_file: str, overrides: Mapping[str, Any] | None = None) -> Scale:
    """Load a scale by name or file, with the keys of `--set`; raise UsageError naming the nearest one."""
    path = FOLDER / f"{name_or_file}.toml"
    if not path.is_file():
        path = Path(name_or_file)
    if not path.is_file():
        raise UsageError(
            f"there is no scale {name_or_file!r}",
            expected=f"{', '.join(scale_names())}, or a TOML file",
            repair=nearest(name_or_file, scale_names()),
        )
    tables = read_toml(path)
    models = tables.get("models")
    if isinstance(models, dict):
        tables["models"] = _resolve_like(models, path.name)
    return Scale.build({"name": path.stem}, tables, overrides or {}, source=path.name)


def _resolve_like(models: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Replace the key `like` of each model with the text and the recipe of the earlier model that it names."""
    resolved: dict[str, Any] = {}
    for name, plan in models.items():
        if isinstance(plan, dict) and "like" in plan:
            try:
                base = resolved[plan["like"]]
                plan = {"text": base["text"], **plan, "recipe": {**base["recipe"], **plan.get("recipe", {})}}
            except (KeyError, TypeError):
                raise UsageError(
                    f"{source}: models.{name}.like is {plan['like']!r}",
                    expected="an earlier model with a text and a recipe",
                ) from None
            del plan["like"]
        resolved[name] = plan
    return resolved


def shipped_scale(name: str) -> Scale | None:
    """Return the scale of this name that comes with Headwater; None if there is none."""
    return load_scale(name) if name in scale_names() else None


def scale_names() -> list[str]:
    """Return the names of Headwater's scales, smallest first."""
    order = {"mini": 0, "small": 1, "paper": 2}
    return sorted((path.stem for path in FOLDER.glob("*.toml")), key=lambda name: order.get(name, 9))


def trainings(scale: Scale, names: Iterable[str]) -> list[str]:
    """Return the names of the trainings of these models, one a seed: `gpt2-a, seed 1`."""
    return [f"{name}, seed {seed}" for name in names for seed in scale.seeds]


def shape_of(scale: Scale, name: str) -> ModelConfig:
    """Return the shape of a model of the scale, with the context that it is trained with."""
    from headwater import shipped
    from headwater.model import load_config
    from headwater.pretraining import PretrainConfig

    plan = scale.models[name]
    if plan.model:
        return load_config(shipped.resolve(plan.model))
    config = PretrainConfig.build(plan.recipe, source=f"models.{name}.recipe")
    vocabulary = scale.texts[plan.text].vocabulary
    return config.architecture.model_copy(update={"vocabulary": vocabulary, "context": config.window})


def tokens_read(scale: Scale, name: str) -> int:
    """Return the number of tokens that one pre-training of a model reads."""
    from headwater.pretraining import PretrainConfig

    recipe = PretrainConfig.build(scale.models[name].recipe, source=f"models.{name}.recipe")
    return recipe.steps * recipe.batch_size * recipe.window


def training_flops(shape: ModelConfig) -> int:
    """Return the floating-point operations of forward and backward pass, per token of a window of the context.

    6 for every weight of a matmul (2 forward, 4 backward), and 12 · layers · width · context for attention's two
    matmuls over the whole square, as usual (PaLM, Chowdhery et al. 2022, appendix B); a causal kernel computes
    half of that. The output matrix is used once for each predicted token; a model of two directions predicts it
    twice.
    """
    from headwater.model import build_model
    from headwater.pretraining import CHOSEN

    outer = ("tokens.", "positions.", "segments.", "output.", "output_transform.")
    named = build_model(shape, device="meta").named_parameters()
    inner = sum(p.numel() for name, p in named if p.dim() > 1 and not name.startswith(outer))
    attention = 0 if shape.is_recurrent else 12 * shape.layers * shape.width * shape.context
    predictions = CHOSEN if shape.is_masked else shape.output_width // shape.width
    return round(6 * (inner + predictions * shape.vocabulary * shape.width)) + attention


def matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations per second of this device's matmuls, measured."""
    import torch
    from torch.utils.benchmark import Timer

    from headwater.model import default_backend

    size = 1_024 if device.type == "cpu" else 8_192  # large enough to hide the launch on a device
    names = {"x": torch.ones(size, size, dtype=dtype, device=device), "linear": default_backend().linear}
    timer = Timer("linear(x, x)", globals=names, num_threads=torch.get_num_threads())
    return 2 * size**3 / timer.timeit(10).mean


def cost_of(scale: Scale, models: Sequence[str]) -> Cost:
    """Return the cost of pre-training `models` once a seed.

    The number of tokens of a recipe in epochs is unknown before its text is packed, so scales have `steps`.
    """
    flops, tokens, largest = 0.0, 0, ("", 0)
    for name in models:
        shape = shape_of(scale, name)
        read = tokens_read(scale, name) * len(scale.seeds)
        tokens += read
        flops += read * training_flops(shape)
        parameters = shape.parameter_count
        if parameters > largest[1]:
            largest = (name, parameters)
    return Cost(flops, tokens, largest[0], largest[1], 16 * largest[1])


def check_machine(scale: Scale, models: Sequence[str], device: str = "auto") -> str:
    """Return a sentence on the cost of the scale on this machine; raise ResourceError if it cannot run here.

    The time is that of pre-training; fine-tuning and scores take more.
    """
    from headwater.device import available_memory, choose_device

    cost = cost_of(scale, models)
    if not models:
        return "nothing is pre-trained"
    if not scale.run:
        raise ResourceError(
            f"the scale {scale.name} is described, not run: {cost.text()}",
            expected="a scale that is run",
            repair=f"Use --scale mini on two cores, --scale small on a GPU. {scale.about}",
        )
    place = choose_device(device)
    available = available_memory(place)
    if cost.bytes > available:
        raise ResourceError(
            f"the scale {scale.name} does not fit this machine, where {available / 1e9:.2g} GB are free: "
            f"{cost.text()}",
            repair=f"Use a machine with {cost.bytes * 1.5 / 1e9:.2g} GB, or a smaller --scale",
        )
    works = [(cost_of(scale, [name]).flops, _dtype(scale, name)) for name in models]
    hours = sum(flops / (_REACHED * matmul_rate(dtype, place)) for flops, dtype in works) / 3600
    if hours > scale.most_hours:
        raise ResourceError(
            f"the scale {scale.name} would take about {hours:,.0f} hours of pre-training on this machine "
            f"({place.type}): {cost.text()}",
            expected=f"at most {scale.most_hours:g} hours",
            repair="Use a GPU, or --scale mini; to run it anyway, --set most_hours=HOURS",
        )
    return f"pre-training takes {cost.text()}; about {60 * hours:,.0f} minutes on this machine"


def _dtype(scale: Scale, model: str) -> torch.dtype:
    """Return the type that a model of the scale is trained in."""
    import torch

    return torch.bfloat16 if scale.models[model].recipe.get("precision") == "bf16" else torch.float32
