"""`ModelConfig`: what a model is, as data, and the presets that name the papers' combinations.

GPT-1 (Radford et al. 2018, section 4.1): post-norm, no final norm, context 512, 40,478 rows. GPT-2 (Radford et al.
2019, section 2.3): pre-norm with one final norm, residual weights scaled by 1/√N at the start, context 1,024,
50,257 rows. BERT (Devlin et al. 2019, section 3): GPT-1 with full attention. The presets for small machines keep
GPT-2's 64 dimensions per head and its width of 64 times the depth; their vocabulary is that of the tokenizer they
are trained with. Other distributions can add kinds of models: see `Architecture`.

`faithful` decides where the authors' code differs from the papers: "code" follows the code, "paper" the papers'
text and equations. Pre-training, fine-tuning and conversion have it as a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from headwater.config import Config
from headwater.errors import UsageError, suggest
from headwater.plugins import OPTIONAL_ARCHITECTURES, Plugin, not_installed, register_plugins

if TYPE_CHECKING:
    from torch import Tensor

    from headwater.model.transformer import Transformer

    # A transformer; a model of another architecture has the same calls.
    Model: TypeAlias = Transformer

Faithful = Literal["code", "paper"]
# GPT-1 (openai/finetune-transformer-lm): dropout on the embedding matrix, also in the softmax, and a softmax that
# includes the position rows. GPT-2 (openai/gpt-2): a deviation of 0.01 for position rows. The papers have none of
# these. The factor 1/√N of GPT-2's paper is missing in the code; here it is always used.
_FAITHFUL: dict[str, dict[Faithful, dict[str, Any]]] = {
    "gpt1": {
        "code": {"embedding_dropout": "matrix", "softmax_rows": "all"},
        "paper": {"embedding_dropout": "sum", "softmax_rows": "vocabulary"},
    },
    "gpt2": {"code": {"position_deviation": 0.01}, "paper": {"position_deviation": 0.02}},
}

OWN_TYPE = "headwater-"  # begins the model types that only Headwater reads
# Activations of an MLP by our names: GPT's and BERT's GELU, and others that their folders name. `f` is
# torch.nn.functional, so that this module does not import torch.
ACTIVATIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "gelu-tanh": lambda f, x: f.gelu(x, approximate="tanh"),  # GPT-1, GPT-2
    "gelu": lambda f, x: f.gelu(x),  # BERT
    "quick-gelu": lambda _, x: x * (1.702 * x).sigmoid(),
    "relu": lambda f, x: f.relu(x),
    "silu": lambda f, x: f.silu(x),
    "tanh": lambda _, x: x.tanh(),
}
# Fine-tuning of a base whose folder does not say what suits it: GPT-1's rate (Radford et al. 2018, section 4.1).
PAPER_RATE = 6.25e-5
OTHERS: dict[str, Any] = {"transfer_rate": PAPER_RATE, "is_foreign": True}
# Parts that inference with causal models does not compute.
_MASKED_ONLY = ("segments", "embedding_norm", "output_transform")


@dataclass(frozen=True, slots=True)
class Architecture:
    """What other packages must know of a kind of model; see `register`."""

    module: str
    """Where its class is, as "package.module:Class"; imported when a model is built."""
    is_recurrent: bool = False
    """Whether it has LSTMs instead of attention."""
    is_causal: bool = True
    """Whether a position sees only earlier ones, unless `attention` is full."""
    directions: int = 1
    """2: hidden states are twice as wide, and each token is predicted twice."""
    network: str = ""
    """Where its class of inference is, "package.module:Class": a `headwater.inference.Network`, which is made with
    (model, precision) and does not share its memory. Without one, the backends of the Transformer run it."""

    def register(self, name: str, presets: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Add this kind of model as `architecture = NAME` of a configuration, and its presets.

        The class takes a ModelConfig and has the methods of `Transformer`. Its attribute `objective`, if there is
        one, replaces L1 in pre-training.
        """
        _ARCHITECTURES[name] = self
        PRESETS.update({preset: dict(shape) for preset, shape in (presets or {}).items()})


_ARCHITECTURES = {
    "transformer": Architecture("headwater.model.transformer:Transformer"),
}


def architecture_of(config: ModelConfig) -> Architecture:
    """Return the kind of model that a configuration describes."""
    return _ARCHITECTURES[config.architecture]


class ModelConfig(Config):
    """Shape and variant of one model. Sizes count rows, positions, blocks, dimensions."""

    architecture: str = "transformer"
    """Kind of model: transformer, or one that another distribution registers, such as headwater-papers' lstm."""
    # The upper bounds are far beyond any model; they bound the work that an untrusted file can cause.
    vocabulary: int = Field(default=50_257, ge=2, le=1 << 31)
    """Rows of the embedding; by default the tokenizer's."""
    context: int = Field(default=1_024, ge=1, le=1 << 31)
    """Positions."""
    layers: int = Field(default=12, ge=1, le=4_096)
    """Blocks."""
    width: int = Field(default=768, ge=1, le=1 << 24)
    """Dimensions."""
    heads: int = Field(default=12, ge=1)
    """Heads of attention."""
    units: int | None = Field(default=None, ge=1, le=1 << 24)
    """A recurrent model's hidden units per layer."""
    norm: Literal["pre", "post"] = "pre"
    """Where LayerNorm is: before a sub-block (GPT-2) or after its residual add (GPT-1)."""
    final_norm: bool = True
    """LayerNorm after the last block."""
    norm_epsilon: float = Field(default=1e-5, ge=0)
    """Epsilon of LayerNorm."""
    attention: Literal["causal", "full"] = "causal"
    """What a position sees: itself and earlier ones (GPT), or every position (BERT)."""
    activation: str = "gelu-tanh"
    """Of the MLP: gelu-tanh (GPT), gelu (exact, BERT), or another one of `ACTIVATIONS`."""
    inner: int | None = Field(default=None, ge=1, le=1 << 26)
    """Dimensions inside the MLP; by default four times the width."""
    scale_attention: bool = True
    """Divide the scores of attention by the square root of a head's dimensions."""
    scale_by_layer: bool = False
    """Divide the scores of attention by the block's number too, from 1."""
    tied: bool = True
    """Whether the output matrix is the token embedding."""
    segments: int = Field(default=0, ge=0, le=1 << 16)
    """Rows for sentence A and B (BERT)."""
    embedding_norm: bool = False
    """LayerNorm over the summed embeddings (BERT)."""
    output_transform: bool = False
    """Linear map with GELU and LayerNorm before the tied projection, and a bias after it (BERT)."""
    predicts_tokens: bool = True
    """Whether it was trained to predict tokens; false for an encoder without such a head (BertModel)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout while training: after each sub-block, and the next two by default."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the weights of attention, where it differs from `dropout`."""
    input_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the embeddings, where it differs from `dropout`."""
    init_deviation: float = Field(default=0.02, gt=0)
    """Deviation of the initial weights."""
    position_deviation: float = Field(default=0.02, gt=0)
    """Deviation of the initial position rows."""
    residual_scaling: bool = True
    """Divide the initial residual projections by √(2 · layers)."""
    embedding_dropout: Literal["sum", "matrix"] = "sum"
    """What dropout is applied to: the embedding matrix, as in GPT-1's code, or the sum of embeddings."""
    softmax_rows: Literal["vocabulary", "all"] = "vocabulary"
    """all: the softmax of the loss includes the position rows, as in GPT-1's code."""

    transfer_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of fine-tuning that suits these weights; by default that of a model of this width."""
    transfer_epochs: float | None = Field(default=None, gt=0)
    """Epochs of fine-tuning that suit these weights; by default 3, and more for few rows."""
    is_foreign: bool = False
    """Whether other programs trained it: the two keys above are then GPT-1's, and not a measurement."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.architecture not in _ARCHITECTURES:
            register_plugins()
        if self.architecture not in _ARCHITECTURES:
            if self.architecture in OPTIONAL_ARCHITECTURES:
                raise not_installed(f"architecture = {self.architecture}")
            kinds = ", ".join(_ARCHITECTURES)
            raise ValueError(f"architecture = {self.architecture} is not a kind of model: there are {kinds}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.is_recurrent and self.units is None:
            raise ValueError(f"architecture = {self.architecture} needs units, as units = 2048")
        if not self.is_recurrent and self.units is not None:
            raise ValueError(f"units = {self.units} needs a recurrent architecture")
        if self.is_recurrent and self.is_masked:
            raise ValueError(f"architecture = {self.architecture} cannot have attention = full")
        if not self.predicts_tokens and not self.is_masked:
            raise ValueError("predicts_tokens = false needs attention = full, as BertModel")
        for key in _MASKED_ONLY:
            value = getattr(self, key)
            if not self.is_masked and value != type(self).model_fields[key].default:
                raise ValueError(f"{key} = {value} needs attention = full, as BERT")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation = {self.activation} is not one of {', '.join(ACTIVATIONS)}")
        if self.is_recurrent and (not self.tied or self.inner is not None):
            raise ValueError("tied = false and inner need architecture = transformer")
        if not self.tied and self.softmax_rows == "all":
            raise ValueError("softmax_rows = all needs tied = true: the position rows follow the token embedding")
        if self.output_transform and self.softmax_rows == "all":
            raise ValueError(
                "softmax_rows = all needs a model without output_transform, whose bias has no position rows"
            )
        return self

    def faithful_to(self, faithful: Faithful) -> ModelConfig:
        """Return this configuration with the keys that `faithful` decides."""
        if self.output_transform:  # BERT's released models follow the paper
            return self
        family = "gpt1" if self.is_recurrent or self.norm == "post" else "gpt2"
        return self.model_copy(update=_FAITHFUL[family][faithful])

    @property
    def model_type(self) -> str:
        """The `model_type` of transformers: gpt2, openai-gpt or bert; for any other model "headwater-…"."""
        usual_scale = self.scale_attention and not self.scale_by_layer
        if self.architecture == "transformer" and self.is_masked:
            has_parts = self.segments > 0 and self.embedding_norm and self.output_transform == self.predicts_tokens
            if self.norm == "post" and not self.final_norm and has_parts and usual_scale:
                return "bert"
        elif self.architecture == "transformer":
            if self.norm == "pre" and self.final_norm:
                return "gpt2"
            its_mlp = self.mlp_width == 4 * self.width and self.activation in ("gelu-tanh", "relu", "silu")
            if self.norm == "post" and not self.final_norm and usual_scale and its_mlp:
                return "openai-gpt"
        return OWN_TYPE + self.architecture

    @property
    def is_masked(self) -> bool:
        """Whether the model fills masks (BERT) rather than continues a text (GPT)."""
        return self.attention == "full"

    @property
    def is_recurrent(self) -> bool:
        """Whether the model has LSTMs instead of attention."""
        return architecture_of(self).is_recurrent

    @property
    def is_causal(self) -> bool:
        """Whether a position sees only earlier ones: such a model continues and scores texts."""
        return not self.is_masked and architecture_of(self).is_causal

    @property
    def mlp_width(self) -> int:
        """Dimensions inside the MLP."""
        return self.inner or 4 * self.width

    @property
    def dropouts(self) -> tuple[float, float, float]:
        """Dropout of the embeddings, of the weights of attention, and after each sub-block."""
        inputs, weights = self.input_dropout, self.attention_dropout
        return (
            self.dropout if inputs is None else inputs,
            self.dropout if weights is None else weights,
            self.dropout,
        )

    def of_others(self) -> ModelConfig:
        """Return this for weights that another program trained: fine-tuning then has GPT-1's rate."""
        return self.model_copy(update=OTHERS)

    def with_dropout(self, dropout: float) -> ModelConfig:
        """Return this with one dropout in all three places."""
        return self.model_copy(update={"dropout": dropout, "attention_dropout": None, "input_dropout": None})

    def attention_factor(self, layer: int) -> float:
        """Return the factor of the queries of a block (from 0), before they are divided by √head_dim."""
        factor = 1.0 if self.scale_attention else math.sqrt(self.width // self.heads)
        return factor / (layer + 1) if self.scale_by_layer else factor

    @property
    def parameter_count(self) -> int:
        """Number of parameters of the model, counted without allocating it."""
        return sum(parameter.numel() for parameter in build_model(self, device="meta").parameters())

    @property
    def output_width(self) -> int:
        """Width of the hidden states that heads read."""
        return architecture_of(self).directions * self.width


def build_model(config: ModelConfig, *, seed: int | None = None, device: str = "cpu") -> Model:
    """Build the model that `config` describes, in float32.

    Its weights are drawn from the seed, or uninitialised without one. On device "meta" no memory is allocated.
    """
    import torch

    with torch.device("meta"):
        model: Model = Plugin(architecture_of(config).module).load()(config)
    if device != "meta":
        model = model.to_empty(device=device)
    if seed is not None:
        model.initialise(seed)
    return model


_GPT1: dict[str, Any] = {
    "norm": "post",
    "final_norm": False,
    "residual_scaling": False,
    "dropout": 0.1,
}
_GPT1_FULL = _GPT1 | {"vocabulary": 40_478, "context": 512, "layers": 12, "width": 768, "heads": 12}
_SMALL: dict[str, Any] = {"vocabulary": 4_096, "context": 256}


def _small(layers: int, heads: int) -> dict[str, Any]:
    """Return a shape for small machines, with 64 dimensions per head as the papers have.

    The initial deviation is the papers' 0.02 at their width of 768, proportional to 1/√width: with 0.02, narrow
    models learn little but the frequencies of single words in their first hundreds of updates.
    """
    width = 64 * heads
    deviation = round(0.02 * math.sqrt(768 / width), 3)
    return _SMALL | {"layers": layers, "width": width, "heads": heads, "init_deviation": deviation}


# GPT-1 with full attention, trained on the masked objective.
_MASKED = _GPT1 | {"attention": "full"}
# BERT's released models (Devlin et al. 2019, section 3).
_BERT = _MASKED | {
    **{"vocabulary": 30_522, "context": 512, "norm_epsilon": 1e-12, "activation": "gelu"},
    **{"segments": 2, "embedding_norm": True, "output_transform": True},
}

# Each preset: the keys in which it differs from the defaults.
PRESETS: dict[str, dict[str, Any]] = {
    "gpt1": _GPT1_FULL,
    "gpt2-small": {"layers": 12, "width": 768, "heads": 12},
    "gpt2-medium": {"layers": 24, "width": 1_024, "heads": 16},
    "gpt2-large": {"layers": 36, "width": 1_280, "heads": 20},
    "gpt2-xl": {"layers": 48, "width": 1_600, "heads": 25},
    # For small machines, smallest first.
    "gpt2-pico": _small(2, 2),
    "gpt2-nano": _small(3, 3),
    "gpt2-micro": _small(4, 4),
    "gpt2-mini": _small(5, 5),
    "gpt2-midi": _small(6, 6),
    "gpt1-nano": _GPT1 | _small(3, 3),
    "gpt1-mini": _GPT1 | _small(5, 5),
    "bert-base": _BERT | {"layers": 12, "width": 768, "heads": 12},
    "bert-large": _BERT | {"layers": 24, "width": 1_024, "heads": 16},
    "bert-nano": _MASKED | _small(3, 3),
    "bert-mini": _MASKED | _small(5, 5),
}


def preset(name: str, *, faithful: Faithful = "code", **changes: Any) -> ModelConfig:
    """Return the named preset with `changes`; raise UsageError naming the nearest for one that does not exist."""
    if name not in PRESETS:
        register_plugins()
    if name not in PRESETS:
        if name.partition("-")[0] in OPTIONAL_ARCHITECTURES:
            raise not_installed(f"the preset {name}")
        raise UsageError(f"there is no preset {name!r}", **suggest(name, PRESETS))
    config = ModelConfig.build(PRESETS[name], changes, source=f"preset {name}")
    decided = config.faithful_to(faithful)
    return decided.model_copy(update={key: getattr(config, key) for key in changes})
