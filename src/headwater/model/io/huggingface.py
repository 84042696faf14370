"""Hugging Face's names for our models: `config.json` and tensors, in both directions.

`gpt2` is the pre-norm Transformer with a final norm, `openai-gpt` the post-norm one without. Both store their
linear maps as width-1 convolutions, (in, out), the transpose of ours; `bert` (module `bert`) does not. Settings
that those formats lack are in a table "headwater" of `config.json`, which other programs ignore. A model that is
none of them (the LSTM, a pre-norm model without a final norm) has its own model type and keeps our names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headwater.errors import DataError, UsageError
from headwater.model.config import ACTIVATIONS, OTHERS, OWN_TYPE, ModelConfig
from headwater.model.io import bert

TABLE = "headwater"
_CLASSES = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel"}
_CLASSIFIERS = {"gpt2": "GPT2ForSequenceClassification", "openai-gpt": "OpenAIGPTForSequenceClassification"}
_ACTIVATION_KEYS = {"gpt2": "activation_function", "openai-gpt": "afn", "bert": "hidden_act"}
# Names of activations in transformers that differ from ours by more than a hyphen.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate"), "gelu-tanh"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu-tanh"),
    **{"gelu_python": "gelu", "swish": "silu"},
}
_OPENAI_GPT = {"gelu": "gelu-tanh"}  # openai-gpt calls GELU's tanh form just "gelu"
END_OF_TEXT = 50_256  # <|endoftext|> of the original GPT-2 vocabulary
# Other names of the keys of GPTs, which transformers reads.
_ALIASES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
# Fields of ModelConfig that neither format has.
_OURS_ONLY = ("position_deviation", "residual_scaling", "embedding_dropout", "softmax_rows")

# Fields that older folders have: of a head for next-sentence prediction, whose tensors are ignored.
_REMOVED = ("next_sentence",)
# Causal masks and position numbers in older files.
_BUFFERS = re.compile(r"(^|\.)(h\.\d+\.attn\.(bias|masked_bias)|position_ids)$")
HEAD = "lm_head.weight"
# Prefixes of tensors' names that a file may omit.
PREFIXES = {"gpt2": "transformer.", "openai-gpt": "transformer.", "bert": bert.PREFIX}
# Prefixes of torch.compile, DataParallel and trainers' modules, which are no part of a tensor's name.
_WRAPPERS = re.compile(r"^(?:module\.|model\.)+")
# Heads for tasks, which a language model does not need.
_TASK_HEADS = ("score.", "classifier.", "qa_outputs.", "multiple_choice_head.")

_BLOCK = {
    "norm_1": "ln_1",
    "attention.query_key_value": "attn.c_attn",
    "attention.projection": "attn.c_proj",
    "norm_2": "ln_2",
    "mlp.expand": "mlp.c_fc",
    "mlp.contract": "mlp.c_proj",
}
_EMBEDDINGS = {"gpt2": ("wte", "wpe"), "openai-gpt": ("tokens_embed", "positions_embed")}


class Name(NamedTuple):
    """One tensor: our name, the file's (several are stacked by rows), and whether the file transposes it."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False


def tensor_names(kind: str, config: ModelConfig, ours: list[str]) -> Iterator[Name]:
    """Yield the tensors of a file of this model type, in the order of our names."""
    if kind == "bert":
        yield from (Name(name, theirs) for name, theirs in bert.tensor_names(config))
        return
    if kind not in _CLASSES:
        yield from (Name(name, (name,)) for name in ours)
        return
    tokens, positions = _EMBEDDINGS[kind]
    yield Name("tokens.weight", (f"transformer.{tokens}.weight",))
    yield Name("positions.weight", (f"transformer.{positions}.weight",))
    for layer in range(config.layers):
        for mine, theirs in _BLOCK.items():
            linear = not mine.startswith("norm")
            for part in ("weight", "bias"):
                yield Name(
                    f"blocks.{layer}.{mine}.{part}",
                    (f"transformer.h.{layer}.{theirs}.{part}",),
                    linear and part == "weight",
                )
    if not config.tied:
        yield Name("output.weight", (HEAD,))
    if config.final_norm:
        for part in ("weight", "bias"):
            yield Name(f"final_norm.{part}", (f"transformer.ln_f.{part}",))


def plain_name(name: str) -> str:
    """Return a tensor's current name, without the prefixes of what its model was wrapped in."""
    return bert.modern_name(_WRAPPERS.sub("", name.replace("_orig_mod.", "")))


def is_unused(kind: str, name: str) -> bool:
    """Return True for a tensor the model does not need: a causal mask, position numbers, heads for tasks."""
    return _BUFFERS.search(name) is not None or is_head(kind, name)


def is_head(kind: str, name: str) -> bool:
    """Return True for a tensor of a head for a task, which a language model does not have."""
    heads = _TASK_HEADS + (bert.UNUSED if kind == "bert" else ())
    return name.startswith(heads) and _BUFFERS.search(name) is None


def write_config(config: ModelConfig, dtype: str, special: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`; dtype: torch's name without "torch."; special: ids of tokens by key."""
    kind = config.model_type
    if kind == "bert":
        more: dict[str, Any] = {_ACTIVATION_KEYS[kind]: activation_name(kind, config.activation)}
        if special.get("pad_token_id"):  # else 0, transformers' default
            more["pad_token_id"] = special["pad_token_id"]
        table = {name: getattr(config, name) for name in _OURS_ONLY} | _transfer(config)
        return bert.write_config(config, dtype) | more | {TABLE: table}
    if kind not in _CLASSES:
        return {"model_type": kind, "dtype": dtype, TABLE: config.to_dict()}
    content: dict[str, Any] = {
        "model_type": kind,
        "architectures": [_CLASSES[kind]],
        "dtype": dtype,
        "vocab_size": config.vocabulary,
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropouts[0],
        "attn_pdrop": config.dropouts[1],
        "initializer_range": config.init_deviation,
        **special,
        "tie_word_embeddings": config.tied,
        _ACTIVATION_KEYS[kind]: activation_name(kind, config.activation),
    }
    if kind == "gpt2":
        content |= {
            "n_ctx": config.context,  # llama.cpp's converter reads it
            "n_inner": config.inner,
            "scale_attn_weights": config.scale_attention,
            "scale_attn_by_inverse_layer_idx": config.scale_by_layer,
        }
    return content | {TABLE: {name: getattr(config, name) for name in _OURS_ONLY} | _transfer(config)}


def _transfer(config: ModelConfig) -> dict[str, Any]:
    """Return what suits fine-tuning of this base, where it is known."""
    keys = {key: getattr(config, key) for key in ("transfer_rate", "transfer_epochs", "is_foreign")}
    return {key: value for key, value in keys.items() if value}


def read_config(content: Mapping[str, Any], path: str) -> tuple[str, ModelConfig]:
    """Return the model type and our configuration of a `config.json`.

    Raises DataError naming the key if it describes another model.
    """
    kind = content.get("model_type")
    table = content.get(TABLE, {})
    if TABLE not in content:
        table = OTHERS
    if not isinstance(table, dict):
        raise DataError(f"{path} has {TABLE} as a JSON {type(table).__name__}", expected="an object")
    table = {key: value for key, value in table.items() if key not in _REMOVED}
    try:
        if isinstance(kind, str) and kind.startswith(OWN_TYPE):
            return kind, ModelConfig.build(table, source=path)
        if kind == "bert":
            _refuse_others(content, path)
            shape = bert.read_config(content, path) | {"activation": read_activation(kind, content, path)}
            return kind, ModelConfig.build(shape, table, source=path)
        if not isinstance(kind, str) or kind not in _CLASSES:
            seen = f"describes a {kind!r}, which Headwater does not have" if kind else "has no model_type"
            raise DataError(f"{path} {seen}", expected="gpt2, openai-gpt or bert")
        _refuse_others(content, path)
        content = {ours: content[alias] for alias, ours in _ALIASES.items() if alias in content} | dict(content)
        fields = {
            "vocabulary": content["vocab_size"],
            "context": content.get("n_positions", content.get("n_ctx")),
            "width": content["n_embd"],
            "layers": content["n_layer"],
            "heads": content["n_head"],
            "norm_epsilon": content.get("layer_norm_epsilon", 1e-5),
            **bert.dropouts(*(content.get(f"{part}_pdrop", 0.1) for part in ("resid", "attn", "embd"))),
            "init_deviation": content.get("initializer_range", 0.02),
            "norm": "pre" if kind == "gpt2" else "post",
            "final_norm": kind == "gpt2",
            "residual_scaling": kind == "gpt2",
            "activation": read_activation(kind, content, path),
            # A classifier has no output matrix, so its token embedding serves.
            "tied": bool(content.get("tie_word_embeddings", True))
            or _CLASSIFIERS[kind] in bert.architectures(content),
        }
        if kind == "gpt2":
            fields |= {
                "inner": content.get("n_inner"),
                # `reorder_and_upcast_attn` changes the order of operations, not what they compute.
                "scale_attention": bool(content.get("scale_attn_weights", True)),
                "scale_by_layer": bool(content.get("scale_attn_by_inverse_layer_idx", False)),
            }
        return kind, ModelConfig.build(fields, table, source=path)
    except KeyError as error:
        raise DataError(f"{path} lacks the key {error.args[0]!r}", expected=f"a {kind} configuration") from None
    except UsageError as error:
        raise DataError(str(error)) from None


def read_activation(kind: str, content: Mapping[str, Any], path: str) -> str:
    """Return our name of an activation; raise DataError for one that has parameters or is unknown."""
    key = _ACTIVATION_KEYS[kind]
    theirs = str(content.get(key, "gelu_new" if kind == "gpt2" else "gelu"))
    special = _OPENAI_GPT if kind == "openai-gpt" else {}
    ours = special.get(theirs) or _ACTIVATIONS.get(theirs) or theirs.replace("_", "-")
    if ours not in ACTIVATIONS:
        raise DataError(f"{path} has {key} = {theirs!r}", expected=", ".join(ACTIVATIONS))
    return ours


def activation_name(kind: str, activation: str) -> str:
    """Return the name in transformers of an activation."""
    if activation == "gelu-tanh":
        return "gelu" if kind == "openai-gpt" else "gelu_new"
    return activation.replace("-", "_")


def _refuse_others(content: Mapping[str, Any], path: str) -> None:
    """Raise DataError for a decoder that attends to an encoder, and for quantized weights."""
    if content.get("add_cross_attention"):
        raise DataError(
            f"{path} has add_cross_attention = true: the model is the decoder of an encoder-decoder",
            expected="a model that reads one text",
        )
    if content.get("quantization_config"):
        settings = content["quantization_config"]
        method = str(settings.get("quant_method", "unnamed") if isinstance(settings, dict) else settings)[:40]
        raise DataError(
            f"{path} has quantization_config: the model computes with quantized weights ({method})",
            expected="weights in float32, float16 or bfloat16",
            repair="Convert the model that was quantized",
        )
