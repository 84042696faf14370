"""`ModelConfig`: what a model is, as data, and the presets that name the papers' combinations.

GPT-1 (Radford et al. 2018, section 4.1): post-norm, no final norm, context 512, 40,478 rows. GPT-2 (Radford et
al. 2019, section 2.3): pre-norm with one final norm, residual weights scaled by 1/√N at the start, context 1,024,
50,257 rows. BERT (Devlin et al. 2019, section 3): GPT-1 with full attention. ELMo (Peters et al.
2018, section 3.1), `bilstm`: an LSTM in each direction, with as many parameters as the GPT-1 of its size. The
presets for small machines keep GPT-2's 64 dimensions a head and its width of 64 times the depth, and take their
number of rows from the tokenizer they are trained with.

`faithful` decides where the authors' code does what the papers do not say: "code" follows the code, "paper" takes
what the papers' text and equations describe. Pre-training, fine-tuning and conversion have it as a key.
"""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from headwater.config import Config
from headwater.errors import UsageError, nearest

Faithful = Literal["code", "paper"]
FAITHFUL: tuple[Faithful, ...] = get_args(Faithful)
# GPT-1 (openai/finetune-transformer-lm): dropout on the embedding matrix, which the softmax uses too, and a
# softmax over the position rows as well. GPT-2 (openai/gpt-2): position rows are drawn with 0.01. The papers'
# equations have none of these. Both codes lack the factor 1/√N, which GPT-2's paper names: the paper is followed
# there.
_FAITHFUL: dict[str, dict[Faithful, dict[str, Any]]] = {
    "gpt1": {
        "code": {"embedding_dropout": "matrix", "softmax_rows": "all"},
        "paper": {"embedding_dropout": "sum", "softmax_rows": "vocabulary"},
    },
    "gpt2": {"code": {"position_deviation": 0.01}, "paper": {"position_deviation": 0.02}},
}


class ModelConfig(Config):
    """Shape and variant of one model. Sizes count rows, positions, blocks, dimensions."""

    model_config = ConfigDict(allow_inf_nan=False)

    architecture: Literal["transformer", "lstm", "bilstm"] = "transformer"
    """Kind of model."""
    # The upper bounds are far beyond any model, and keep a stranger's file from asking for endless work.
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
    """The LSTM's hidden units a layer (GPT-1 section 5: one layer of 2,048)."""
    norm: Literal["pre", "post"] = "pre"
    """Where LayerNorm is: before a sub-block (GPT-2) or after its sum with the residual (GPT-1)."""
    final_norm: bool = True
    """LayerNorm after the last block."""
    norm_epsilon: float = Field(default=1e-5, gt=0)
    """Epsilon of LayerNorm."""
    attention: Literal["causal", "full"] = "causal"
    """What a position sees: itself and what came before (GPT), or every position (BERT)."""
    activation: Literal["gelu-tanh", "gelu"] = "gelu-tanh"
    """GELU in its tanh form (GPT) or exact (BERT)."""
    segments: int = Field(default=0, ge=0, le=1 << 16)
    """Rows for sentence A and B (BERT)."""
    embedding_norm: bool = False
    """LayerNorm over the summed embeddings (BERT)."""
    output_transform: bool = False
    """Linear map with GELU and LayerNorm before the tied projection, and a bias after it (BERT)."""
    next_sentence: bool = False
    """Linear map, tanh and classifier for next-sentence prediction (BERT)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout while training."""
    init_deviation: float = Field(default=0.02, gt=0)
    """Deviation of the initial weights."""
    position_deviation: float = Field(default=0.02, gt=0)
    """Deviation of the initial position rows."""
    residual_scaling: bool = True
    """Divide the initial residual projections by √(2 · layers)."""
    embedding_dropout: Literal["sum", "matrix"] = "sum"
    """matrix: drop entries of the embedding matrix, as GPT-1's code does; sum: of the sum, as ports do."""
    softmax_rows: Literal["vocabulary", "all"] = "vocabulary"
    """all: the softmax of the loss runs over the position rows too, as in GPT-1's code."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.is_recurrent and self.units is None:
            raise ValueError(f"architecture = {self.architecture} needs units, as units = 2048")
        if self.is_recurrent and self.is_masked:
            raise ValueError(f"architecture = {self.architecture} cannot have attention = full")
        if self.next_sentence and not (self.is_masked and self.segments > 1):
            raise ValueError("next_sentence needs attention = full and segments = 2, as BERT")
        return self

    def faithful_to(self, faithful: Faithful) -> ModelConfig:
        """Return this configuration with the keys that `faithful` decides."""
        if self.output_transform:  # BERT's released models are as their paper says
            return self
        family = "gpt1" if self.is_recurrent or self.norm == "post" else "gpt2"
        return self.model_copy(update=_FAITHFUL[family][faithful])

    @property
    def is_masked(self) -> bool:
        """Whether the model fills blanks (BERT) rather than continues a text (GPT)."""
        return self.attention == "full"

    @property
    def is_recurrent(self) -> bool:
        """Whether the model has LSTMs in place of attention."""
        return self.architecture != "transformer"

    @property
    def is_causal(self) -> bool:
        """Whether a position sees only what came before it: such a model continues and scores texts."""
        return not self.is_masked and self.architecture != "bilstm"

    @property
    def output_width(self) -> int:
        """Numbers of each position that heads read."""
        return 2 * self.width if self.architecture == "bilstm" else self.width

    @property
    def layer_outputs(self) -> int:
        """How many outputs of each position a mixture of layers has: h_0 and each layer's.

        An LSTM has its token rows and its mapped output, whatever its depth.
        """
        return 2 if self.architecture == "lstm" else self.layers + 1


_GPT1: dict[str, Any] = {
    "norm": "post",
    "final_norm": False,
    "residual_scaling": False,
    "dropout": 0.1,
}
_GPT1_FULL = _GPT1 | {"vocabulary": 40_478, "context": 512, "layers": 12, "width": 768, "heads": 12}
_SMALL: dict[str, Any] = {"vocabulary": 4_096, "context": 256}
# GPT-1 with full attention: what differs from it is the attention and, in training, the objective.
_MASKED = _GPT1 | {"attention": "full"}
# BERT's released models (Devlin et al. 2019, section 3).
_BERT = _MASKED | {
    **{"vocabulary": 30_522, "context": 512, "norm_epsilon": 1e-12, "activation": "gelu"},
    **{"segments": 2, "embedding_norm": True, "output_transform": True},
}
_LSTM: dict[str, Any] = {"architecture": "lstm", "layers": 1, "heads": 1, "dropout": 0.1}
# ELMo's two layers; the units give as many parameters as gpt1-nano and gpt1-mini have.
_BILSTM = _LSTM | {"architecture": "bilstm", "layers": 2}

PRESETS: dict[str, dict[str, Any]] = {
    "gpt1": _GPT1_FULL,
    "gpt2-small": {"layers": 12, "width": 768, "heads": 12},
    "gpt2-medium": {"layers": 24, "width": 1_024, "heads": 16},
    "gpt2-large": {"layers": 36, "width": 1_280, "heads": 20},
    "gpt2-xl": {"layers": 48, "width": 1_600, "heads": 25},
    "lstm": _LSTM | {"vocabulary": 40_478, "context": 512, "width": 768, "units": 2_048},
    # For small machines, smallest first.
    "gpt2-pico": _SMALL | {"layers": 2, "width": 128, "heads": 2},
    "gpt2-nano": _SMALL | {"layers": 3, "width": 192, "heads": 3},
    "gpt2-micro": _SMALL | {"layers": 4, "width": 256, "heads": 4},
    "gpt2-mini": _SMALL | {"layers": 5, "width": 320, "heads": 5},
    "gpt2-midi": _SMALL | {"layers": 6, "width": 384, "heads": 6},
    "gpt1-nano": _GPT1 | _SMALL | {"layers": 3, "width": 192, "heads": 3},
    "gpt1-mini": _GPT1 | _SMALL | {"layers": 5, "width": 320, "heads": 5},
    "bert-base": _BERT | {"layers": 12, "width": 768, "heads": 12},
    "bert-large": _BERT | {"layers": 24, "width": 1_024, "heads": 16},
    "bert-nano": _MASKED | _SMALL | {"layers": 3, "width": 192, "heads": 3},
    "bert-mini": _MASKED | _SMALL | {"layers": 5, "width": 320, "heads": 5},
    "lstm-nano": _LSTM | _SMALL | {"width": 192, "units": 512},
    "lstm-mini": _LSTM | _SMALL | {"width": 320, "units": 896},
    "bilstm-nano": _BILSTM | _SMALL | {"width": 192, "units": 197},
    "bilstm-mini": _BILSTM | _SMALL | {"width": 320, "units": 455},
}


def preset(name: str, *, faithful: Faithful = "code", **changes: Any) -> ModelConfig:
    """Return the named preset with `changes` laid over it; raise UsageError naming the nearest preset."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}", repair=nearest(name, PRESETS))
    found = ModelConfig.build(PRESETS[name], changes, source=f"preset {name}")
    decided = found.faithful_to(faithful)
    return decided.model_copy(update={key: getattr(found, key) for key in changes})
