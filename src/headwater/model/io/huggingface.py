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
from headwater.model.config import OWN_TYPE, ModelConfig
from headwater.model.io import bert

TABLE = "headwater"
_CLASSES = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel"}
# Names of GELU's tanh form; openai-gpt calls it just "gelu".
_TANH_GELU = {"gpt2": {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, "openai-gpt": {"gelu", "gelu_new"}}
END_OF_TEXT = 50_256  # <|endoftext|> of the original GPT-2 vocabulary
# Fields of ModelConfig that neither format has.
_OURS_ONLY = ("position_deviation", "residual_scaling", "embedding_dropout", "softmax_rows")
# Switches of GPT2Config with the only supported value.
_PLAIN = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}

# Causal masks and position numbers in older files.
_BUFFERS = re.compile(r"(^|\.)(h\.\d+\.attn\.(bias|masked_bias)|position_ids)$")
HEAD = "lm_head.weight"
# Prefixes of tensors' names that a file may omit.
PREFIXES = {"gpt2": "transformer.", "openai-gpt": "transformer.", "bert": bert.PREFIX}
modern_name = bert.modern_name

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
    if config.final_norm:
        for part in ("weight", "bias"):
            yield Name(f"final_norm.{part}", (f"transformer.ln_f.{part}",))


def is_unused(kind: str, name: str) -> bool:
    """Return True for a tensor the model does not need: a causal mask, position numbers, BERT's other heads."""
    return _BUFFERS.search(name) is not None or (kind == "bert" and name.startswith(bert.UNUSED))


def write_config(config: ModelConfig, dtype: str, special: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`; dtype: torch's name without "torch."; special: ids of tokens by key."""
    kind = config.model_type
    if kind == "bert":
        ours = (*_OURS_ONLY, "next_sentence") if config.next_sentence else _OURS_ONLY
        return bert.write_config(config, dtype) | {TABLE: {name: getattr(config, name) for name in ours}}
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
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "initializer_range": config.init_deviation,
        **special,
        "tie_word_embeddings": True,
    }
    content |= {"activation_function": "gelu_new"} if kind == "gpt2" else {"afn": "gelu"}
    return content | {TABLE: {name: getattr(config, name) for name in _OURS_ONLY}}


def read_config(content: Mapping[str, Any], path: str) -> tuple[str, ModelConfig]:
    """Return the model type and our configuration of a `config.json`.

    Raises DataError naming the key if it describes another model.
    """
    kind = content.get("model_type")
    table = content.get(TABLE, {})
    if not isinstance(table, dict):
        raise DataError(f"{path} has {TABLE} as a JSON {type(table).__name__}", expected="an object")
    try:
        if isinstance(kind, str) and kind.startswith(OWN_TYPE):
            return kind, ModelConfig.build(table, source=path)
        if kind == "bert":
            return kind, ModelConfig.build(bert.read_config(content, path), table, source=path)
        if not isinstance(kind, str) or kind not in _CLASSES:
            seen = f"describes a {kind!r}, which Headwater does not have" if kind else "has no model_type"
            raise DataError(f"{path} {seen}", expected="gpt2, openai-gpt or bert")
        _refuse_variants(kind, content, path)
        fields = {
            "vocabulary": content["vocab_size"],
            "context": content.get("n_positions", content.get("n_ctx")),
            "width": content["n_embd"],
            "layers": content["n_layer"],
            "heads": content["n_head"],
            "norm_epsilon": content.get("layer_norm_epsilon", 1e-5),
            "dropout": content.get("resid_pdrop", 0.1),
            "init_deviation": content.get("initializer_range", 0.02),
            "norm": "pre" if kind == "gpt2" else "post",
            "final_norm": kind == "gpt2",
            "residual_scaling": kind == "gpt2",
        }
        return kind, ModelConfig.build(fields, table, source=path)
    except KeyError as error:
        raise DataError(f"{path} lacks the key {error.args[0]!r}", expected=f"a {kind} configuration") from None
    except UsageError as error:
        raise DataError(str(error)) from None


def _refuse_variants(kind: str, content: Mapping[str, Any], path: str) -> None:
    key = "activation_function" if kind == "gpt2" else "afn"
    activation = content.get(key)
    if activation is not None and str(activation) not in _TANH_GELU[kind]:
        raise DataError(f"{path} has {key} = {activation!r}", expected="GELU in its tanh form, as GPT-1 and GPT-2")
    for name, plain in _PLAIN.items():
        if content.get(name, plain) != plain:
            raise DataError(f"{path} has {name} = {content[name]!r}", expected=f"{plain!r}, as GPT-1 and GPT-2")
    inner = content.get("n_inner")
    width = content["n_embd"]
    if inner is not None and isinstance(width, int) and inner != 4 * width:
        raise DataError(f"{path} has n_inner = {inner}", expected=f"4 · n_embd = {4 * width}")
