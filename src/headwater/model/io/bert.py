"""Hugging Face's names for BERT: `config.json` and tensors, in both directions.

BERT (Devlin et al. 2019) is the post-norm Transformer with full attention. Its files have queries, keys and values
as three linear maps, ours as one. A pooler and a next-sentence head are ignored. The original release calls a
LayerNorm's gain and bias `gamma` and `beta`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.errors import DataError
from headwater.model.config import ModelConfig

CLASS, ENCODER = "BertForMaskedLM", "BertModel"
PREDICTING = (CLASS, "BertForPreTraining", "BertLMHeadModel")  # classes with a head that predicts tokens
PREFIX = "bert."
# The start of the names of a masked model's output tensors.
OUTPUT = "cls.predictions."
# Copies of the token embedding and of the output bias; matrices of their own in an untied model.
HEAD, HEAD_BIAS = f"{OUTPUT}decoder.weight", f"{OUTPUT}decoder.bias"
# Tensors of BERT's files that the model does not need: copies of tied ones, and heads for other uses.
UNUSED = (OUTPUT, "bert.pooler.", "pooler.", "cls.seq_relationship.", "bert.embeddings.position_ids")
_EMBEDDINGS = {
    "tokens.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "segments.weight": "token_type_embeddings.weight",
    "embedding_norm.weight": "LayerNorm.weight",
    "embedding_norm.bias": "LayerNorm.bias",
}
_BLOCK = {
    "attention.query_key_value": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    "attention.projection": ("attention.output.dense",),
    "norm_1": ("attention.output.LayerNorm",),
    "mlp.expand": ("intermediate.dense",),
    "mlp.contract": ("output.dense",),
    "norm_2": ("output.LayerNorm",),
}
_TRANSFORM = {"dense": "transform.dense", "norm": "transform.LayerNorm"}


def tensor_names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, the file's names); several are stacked along the first dimension."""
    for ours, theirs in _EMBEDDINGS.items():
        yield ours, (f"{PREFIX}embeddings.{theirs}",)
    for layer in range(config.layers):
        for mine, names in _BLOCK.items():
            for part in ("weight", "bias"):
                yield (
                    f"blocks.{layer}.{mine}.{part}",
                    tuple(f"{PREFIX}encoder.layer.{layer}.{name}.{part}" for name in names),
                )
    if not config.predicts_tokens:
        return
    if not config.tied:
        yield "output.weight", (HEAD,)
    for mine, name in _TRANSFORM.items():
        for part in ("weight", "bias"):
            yield f"output_transform.{mine}.{part}", (f"{OUTPUT}{name}.{part}",)
    yield "output_transform.bias", (f"{OUTPUT}bias" if config.tied else HEAD_BIAS,)


def modern_name(name: str) -> str:
    """Return a tensor's current name."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def dropouts(dropout: Any, attention: Any, inputs: Any = None) -> dict[str, Any]:
    """Return the fields of `ModelConfig` for dropout; a field that does not differ from `dropout` is None."""
    others = {"attention_dropout": attention, "input_dropout": inputs}
    return {"dropout": dropout} | {key: None if value == dropout else value for key, value in others.items()}


def write_config(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """Return the content of `config.json`."""
    return {
        "model_type": "bert",
        "architectures": [CLASS if config.predicts_tokens else ENCODER],
        "dtype": dtype,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "type_vocab_size": config.segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropouts[1],
        "initializer_range": config.init_deviation,
        "layer_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied,
    }


def architectures(content: Mapping[str, Any]) -> list[str]:
    """Return the classes that a `config.json` names."""
    named = content.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def read_config(content: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the fields of `ModelConfig`; raise DataError for another variant than BERT's, KeyError for a gap."""
    plain = {"position_embedding_type": "absolute", "is_decoder": False}
    classes = architectures(content) or [CLASS]
    predicts = any(name in PREDICTING for name in classes)
    for name, value in plain.items():
        if content.get(name, value) != value:
            raise DataError(f"{path} has {name} = {content[name]!r}", expected=f"{value!r}, as BERT")
    return {
        "vocabulary": content["vocab_size"],
        "context": content["max_position_embeddings"],
        "width": content["hidden_size"],
        "inner": content.get("intermediate_size", 3_072),
        "tied": bool(content.get("tie_word_embeddings", True)) or not predicts,
        "layers": content["num_hidden_layers"],
        "heads": content["num_attention_heads"],
        "segments": content.get("type_vocab_size", 2),
        **dropouts(content.get("hidden_dropout_prob", 0.1), content.get("attention_probs_dropout_prob", 0.1)),
        "norm_epsilon": content.get("layer_norm_eps", 1e-12),
        "init_deviation": content.get("initializer_range", 0.02),
        "attention": "full",
        "norm": "post",
        "final_norm": False,
        "residual_scaling": False,
        "embedding_norm": True,
        "output_transform": predicts,
        "predicts_tokens": predicts,
    }
