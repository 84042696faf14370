"""Hugging Face's names for our models: `config.json` and tensors, in both directions.

`gpt2` is the pre-norm Transformer with a final norm, `openai-gpt` the post-norm one without. Both store their
linear maps as width-1 convolutions, (in, out), the transpose of ours. `bert` (Devlin et al. 2019) is the post-norm
Transformer with full attention; its files have queries, keys and values as three linear maps, ours as one. A
pooler and a next-sentence head are ignored, and the original release calls a LayerNorm's gain and bias `gamma` and
`beta`. Settings that those formats lack are in a table "headwater" of `config.json`, which other programs ignore.
A model that is none of them (a recurrent one, a pre-norm model without a final norm) has its own model type and
keeps our names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headwater.errors import DataError, UsageError
from headwater.model.config import ACTIVATIONS, OTHERS, OWN_TYPE, ModelConfig

TABLE = "headwater"
_CLASSES = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel"}
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
# The keys of `config.json` by our fields, with transformers' default of a key that may be missing.
_GPT_KEYS: dict[str, tuple[str, Any]] = {
    "vocabulary": ("vocab_size", ...),
    "context": ("n_positions", ...),
    "width": ("n_embd", ...),
    "layers": ("n_layer", ...),
    "heads": ("n_head", ...),
    "norm_epsilon": ("layer_norm_epsilon", 1e-5),
    "dropout": ("resid_pdrop", 0.1),
    "input_dropout": ("embd_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "init_deviation": ("initializer_range", 0.02),
}
_GPT2_KEYS: dict[str, tuple[str, Any]] = {
    "inner": ("n_inner", None),
    "scale_attention": ("scale_attn_weights", True),
    "scale_by_layer": ("scale_attn_by_inverse_layer_idx", False),
}
_BERT_KEYS: dict[str, tuple[str, Any]] = {
    "vocabulary": ("vocab_size", ...),
    "context": ("max_position_embeddings", ...),
    "width": ("hidden_size", ...),
    "inner": ("intermediate_size", 3_072),
    "layers": ("num_hidden_layers", ...),
    "heads": ("num_attention_heads", ...),
    "segments": ("type_vocab_size", 2),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "init_deviation": ("initializer_range", 0.02),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
}
_BERT_FIELDS = {
    "attention": "full",
    "norm": "post",
    "final_norm": False,
    "residual_scaling": False,
    "embedding_norm": True,
}
# Fields of ModelConfig that neither format has.
_OURS_ONLY = ("position_deviation", "residual_scaling", "embedding_dropout", "softmax_rows")
# Causal masks and position numbers in older files.
BUFFERS = re.compile(r"(^|\.)(h\.\d+\.attn\.(bias|masked_bias)|position_ids)$")
HEAD = "lm_head.weight"
# Prefixes of tensors' names that a file may omit.
PREFIXES = {"gpt2": "transformer.", "openai-gpt": "transformer.", "bert": "bert."}
# Prefixes of torch.compile, DataParallel and trainers' modules, which are not part of a tensor's name.
_WRAPPERS = re.compile(r"^(?:module\.|model\.)+")
# Heads for tasks, which a language model does not need.
_TASK_HEADS = ("score.", "classifier.", "qa_outputs.", "multiple_choice_head.")

BERT, ENCODER = "BertForMaskedLM", "BertModel"
_PREDICTING = (BERT, "BertForPreTraining", "BertLMHeadModel")  # classes with a head that predicts tokens
# The start of the names of a masked model's output tensors.
OUTPUT = "cls.predictions."
# Copies of the token embedding and of the output bias; matrices of their own in an untied model.
BERT_HEAD, BERT_HEAD_BIAS = f"{OUTPUT}decoder.weight", f"{OUTPUT}decoder.bias"
# Tensors of BERT's files that the model does not need: copies of tied ones, and heads for other uses.
_UNUSED_BY_BERT = (OUTPUT, "bert.pooler.", "pooler.", "cls.seq_relationship.")
# The modules of a file by ours, with the number of a block as {}; three names are stacked by rows.
_GPT = {
    "blocks.norm_1": "transformer.h.{}.ln_1",
    "blocks.attention.query_key_value": "transformer.h.{}.attn.c_attn",
    "blocks.attention.projection": "transformer.h.{}.attn.c_proj",
    "blocks.norm_2": "transformer.h.{}.ln_2",
    "blocks.mlp.expand": "transformer.h.{}.mlp.c_fc",
    "blocks.mlp.contract": "transformer.h.{}.mlp.c_proj",
    "final_norm": "transformer.ln_f",
    "output": "lm_head",
}
_MODULES: dict[str, dict[str, str | tuple[str, ...]]] = {
    "gpt2": {**_GPT, "tokens": "transformer.wte", "positions": "transformer.wpe"},
    "openai-gpt": {**_GPT, "tokens": "transformer.tokens_embed", "positions": "transformer.positions_embed"},
    "bert": {
        "tokens": "bert.embeddings.word_embeddings",
        "positions": "bert.embeddings.position_embeddings",
        "segments": "bert.embeddings.token_type_embeddings",
        "embedding_norm": "bert.embeddings.LayerNorm",
        "blocks.attention.query_key_value": tuple(
            f"bert.encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value")
        ),
        "blocks.attention.projection": "bert.encoder.layer.{}.attention.output.dense",
        "blocks.norm_1": "bert.encoder.layer.{}.attention.output.LayerNorm",
        "blocks.mlp.expand": "bert.encoder.layer.{}.intermediate.dense",
        "blocks.mlp.contract": "bert.encoder.layer.{}.output.dense",
        "blocks.norm_2": "bert.encoder.layer.{}.output.LayerNorm",
        "output_transform.dense": f"{OUTPUT}transform.dense",
        "output_transform.norm": f"{OUTPUT}transform.LayerNorm",
        "output_transform": OUTPUT.removesuffix("."),
        "output": f"{OUTPUT}decoder",
    },
    "gguf": {
        "tokens": "token_embd",
        "positions": "position_embd",
        "final_norm": "output_norm",
        "blocks.norm_1": "blk.{}.attn_norm",
        "blocks.attention.query_key_value": "blk.{}.attn_qkv",
        "blocks.attention.projection": "blk.{}.attn_output",
        "blocks.norm_2": "blk.{}.ffn_norm",
        "blocks.mlp.expand": "blk.{}.ffn_up",
        "blocks.mlp.contract": "blk.{}.ffn_down",
        "output": "output",
    },
}
_TRANSPOSED = ("gpt2", "openai-gpt")


class Name(NamedTuple):
    """One tensor: our name, the file's (several are stacked by rows), and whether the file transposes it."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False


def tensor_names(kind: str, ours: Iterable[str]) -> Iterator[Name]:
    """Yield the tensors of a file of this model type, in the order of our names; "gguf": of a GGUF file."""
    untied = "output.weight" in (ours := list(ours))
    for name in ours:
        if kind not in _MODULES:
            yield Name(name, (name,))
            continue
        module, _, part = name.rpartition(".")
        layer = ""
        if module.startswith("blocks."):
            _, layer, inner = module.split(".", 2)
            module = f"blocks.{inner}"
        if name == "output_transform.bias" and untied:
            module = "output"
        theirs = _MODULES[kind][module]
        stems = (theirs,) if isinstance(theirs, str) else theirs
        names = tuple(f"{stem.format(layer)}.{part}" for stem in stems)
        is_linear = module.startswith(("blocks.attention", "blocks.mlp")) and part == "weight"
        yield Name(name, names, is_linear and kind in _TRANSPOSED)


def plain_name(name: str) -> str:
    """Return a tensor's current name, without the prefixes of what its model was wrapped in."""
    name = _WRAPPERS.sub("", name.replace("_orig_mod.", ""))
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def is_head(kind: str, name: str) -> bool:
    """Return True for a tensor of a head for a task, which a language model does not have."""
    return name.startswith(_TASK_HEADS + (_UNUSED_BY_BERT if kind == "bert" else ()))


def write_config(config: ModelConfig, dtype: str, special: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`; dtype: torch's name without "torch."; special: ids of tokens by key."""
    kind = config.model_type
    if kind not in _ACTIVATION_KEYS:
        return {"model_type": kind, "dtype": dtype, TABLE: config.to_dict()}
    inputs, weights, _ = config.dropouts
    values = {**config.to_dict(), "input_dropout": inputs, "attention_dropout": weights}
    activation = config.activation.replace("-", "_")
    if activation == "gelu_tanh":
        activation = "gelu" if kind == "openai-gpt" else "gelu_new"
    shared = {"tie_word_embeddings": config.tied, _ACTIVATION_KEYS[kind]: activation}

    def written(keys: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
        return {theirs: values.get(ours, getattr(config, ours)) for ours, (theirs, _) in keys.items()}

    content: dict[str, Any] = {"model_type": kind}
    if kind == "bert":
        values["inner"] = config.mlp_width
        content |= {"architectures": [BERT if config.predicts_tokens else ENCODER], "dtype": dtype}
        content |= written(_BERT_KEYS) | shared
        if special.get("pad_token_id"):  # else 0, transformers' default
            content["pad_token_id"] = special["pad_token_id"]
    else:
        content |= {"architectures": [_CLASSES[kind]], "dtype": dtype}
        content |= written(_GPT_KEYS) | dict(special) | shared
    if kind == "gpt2":
        content |= {"n_ctx": config.context} | written(_GPT2_KEYS)  # llama.cpp's converter reads n_ctx
    # What suits fine-tuning of this base, where it is known.
    transfer = {key: getattr(config, key) for key in ("transfer_rate", "transfer_epochs", "is_foreign")}
    table = {name: getattr(config, name) for name in _OURS_ONLY}
    return content | {TABLE: table | {key: value for key, value in transfer.items() if value}}


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
    try:
        if isinstance(kind, str) and kind.startswith(OWN_TYPE):
            return kind, ModelConfig.build(table, source=path)
        if not isinstance(kind, str) or kind not in _ACTIVATION_KEYS:
            seen = f"describes a {kind!r}, which Headwater does not have" if kind else "has no model_type"
            raise DataError(f"{path} {seen}", expected="gpt2, openai-gpt or bert")
        _refuse_others(kind, content, path)
        tied = bool(content.get("tie_word_embeddings", True))
        fields: dict[str, Any] = {"activation": _read_activation(kind, content, path)}
        if kind == "bert":
            predicts = any(name in _PREDICTING for name in architectures(content) or [BERT])
            fields |= _read(_BERT_KEYS, content) | _BERT_FIELDS | {"tied": tied or not predicts}
            fields |= {"output_transform": predicts, "predicts_tokens": predicts}
        else:
            aliases = {ours: content[alias] for alias, ours in _ALIASES.items() if alias in content}
            content = {"n_positions": content.get("n_ctx")} | aliases | dict(content)
            is_gpt2 = kind == "gpt2"
            fields |= _read(_GPT_KEYS | (_GPT2_KEYS if is_gpt2 else {}), content)
            fields |= {"norm": "pre" if is_gpt2 else "post", "final_norm": is_gpt2, "residual_scaling": is_gpt2}
            fields["tied"] = tied
        return kind, ModelConfig.build(fields, table, source=path)
    except KeyError as error:
        raise DataError(f"{path} lacks the key {error.args[0]!r}", expected=f"a {kind} configuration") from None
    except UsageError as error:
        raise DataError(str(error)) from None


def _read(keys: Mapping[str, tuple[str, Any]], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return our fields for these keys; a dropout that does not differ from the others is None."""
    fields = {
        ours: content[theirs] if default is ... else content.get(theirs, default)
        for ours, (theirs, default) in keys.items()
    }
    for field in ("input_dropout", "attention_dropout"):
        if fields.get(field) == fields["dropout"]:
            fields[field] = None
    return fields


def architectures(content: Mapping[str, Any]) -> list[str]:
    """Return the classes that a `config.json` names."""
    named = content.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def _read_activation(kind: str, content: Mapping[str, Any], path: str) -> str:
    """Return our name of an activation; raise DataError for one that has parameters or is unknown."""
    key = _ACTIVATION_KEYS[kind]
    theirs = str(content.get(key, "gelu_new" if kind == "gpt2" else "gelu"))
    special = _OPENAI_GPT if kind == "openai-gpt" else {}
    ours = special.get(theirs) or _ACTIVATIONS.get(theirs) or theirs.replace("_", "-")
    if ours not in ACTIVATIONS:
        raise DataError(f"{path} has {key} = {theirs!r}", expected=", ".join(ACTIVATIONS))
    return ours


def _refuse_others(kind: str, content: Mapping[str, Any], path: str) -> None:
    """Raise DataError for a decoder that attends to an encoder, another BERT, and for quantized weights."""
    bert = {"position_embedding_type": "absolute", "is_decoder": False}
    for name, value in bert.items() if kind == "bert" else ():
        if content.get(name, value) != value:
            raise DataError(f"{path} has {name} = {content[name]!r}", expected=f"{value!r}, as BERT")
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
