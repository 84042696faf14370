"""Models that are one file: a GGUF of the GPT-2 architecture, and nanoGPT's checkpoint.

`convert.gguf` writes GGUF; here it is read with the library `gguf`, which dequantises every type. nanoGPT keeps
the arguments of its model, the weights and the optimizer in `ckpt.pt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwater.errors import DataError, UsageError
from headwater.model.config import OTHERS, ModelConfig, build_model
from headwater.model.io import huggingface
from headwater.model.io.weights import read_pickled
from headwater.shipped import gguf_value, is_gguf, open_gguf

_ARGUMENTS = {"n_layer": "layers", "n_head": "heads", "n_embd": "width", "block_size": "context"}


def read_file(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the configuration and the weights of a model file, by our names.

    Raises FolderError for a damaged file, DataError for another architecture.
    """
    return _read_gguf(path) if is_gguf(path) else _read_nanogpt(path)


def read_file_config(path: Path) -> ModelConfig:
    """Return the configuration in a model file; the weights of a GGUF file are not dequantised for it."""
    return _gguf_config(open_gguf(path), path) if is_gguf(path) else _read_nanogpt(path)[0]


def _read_gguf(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    reader = open_gguf(path)
    import gguf

    config, state = _gguf_config(reader, path), {}
    names = {gguf_name(name): name for name in _parameters(config)}
    for tensor in reader.tensors:
        if tensor.name == "output.weight" and config.tied:
            continue
        if tensor.name not in names:
            raise DataError(f"{path} has the tensor {tensor.name}, which a GPT-2 does not have")
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        state[names[tensor.name]] = torch.from_numpy(values.astype("float32"))  # a copy, with its own memory
    return config, state


def gguf_name(name: str) -> str:
    """Return a parameter's name in a GGUF file: `blocks.3.mlp.expand.weight` -> `blk.3.ffn_up.weight`."""
    return next(huggingface.tensor_names("gguf", [name])).theirs[0]


def _parameters(config: ModelConfig) -> list[str]:
    return list(build_model(config, device="meta").state_dict())


def _gguf_config(reader: Any, path: Path) -> ModelConfig:
    architecture = gguf_value(reader, "general.architecture")
    if architecture != "gpt2":
        raise DataError(f"{path} has the architecture {architecture!r}", expected="gpt2")
    matrices = {tensor.name: tensor for tensor in reader.tensors}
    tokens, output = matrices.get("token_embd.weight"), matrices.get("output.weight")
    if tokens is None:
        raise DataError(f"{path} lacks token_embd.weight", expected="the tensors of a GPT-2")
    # llama.cpp's converter writes the tied matrix a second time.
    tied = output is None or (
        output.tensor_type == tokens.tensor_type and np.array_equal(output.data, tokens.data)
    )
    shape = {
        ours: gguf_value(reader, f"gpt2.{theirs}")
        for theirs, ours in {
            "context_length": "context",
            "embedding_length": "width",
            "block_count": "layers",
            "attention.head_count": "heads",
            "feed_forward_length": "inner",
            "attention.layer_norm_epsilon": "norm_epsilon",
        }.items()
    }
    if shape["inner"] == 4 * (shape["width"] or 0):
        shape["inner"] = None
    return _config(shape | {"vocabulary": int(tokens.shape[-1]), "tied": tied}, path)


def _read_nanogpt(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    content = read_pickled(path)
    model = content.get("model") if isinstance(content, dict) else None
    arguments = content.get("model_args") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(arguments, dict):
        raise DataError(
            f"{path} is not a checkpoint of nanoGPT: it has no model_args next to its weights",
            expected="a ckpt.pt of nanoGPT, a GGUF file, or a folder with config.json next to the weights",
        )
    weights = {huggingface.plain_name(str(name)): value for name, value in model.items()}
    if lacking := [key for key in (*_ARGUMENTS, "vocab_size") if key not in arguments]:
        raise DataError(f"{path} lacks {lacking[0]} in model_args", expected="a ckpt.pt of nanoGPT")
    shape = {ours: arguments[theirs] for theirs, ours in _ARGUMENTS.items()}
    rows = {"vocabulary": arguments["vocab_size"], "dropout": arguments.get("dropout", 0.0)}
    tokens, output = weights.get("transformer.wte.weight"), weights.get("lm_head.weight")
    # nanoGPT stores the tied matrix twice.
    rows["tied"] = output is None or (
        isinstance(output, Tensor) and isinstance(tokens, Tensor) and torch.equal(output, tokens)
    )
    # nanoGPT's GELU is the exact one; its linear maps are not transposed.
    config = _config(shape | rows | {"activation": "gelu"}, path)
    state = {}
    for name in huggingface.tensor_names("gpt2", _parameters(config)):
        (theirs,) = name.theirs
        value = weights.get(theirs)
        if value is None and theirs.endswith(".bias") and not arguments.get("bias", True):
            value = torch.zeros(weights[theirs.removesuffix("bias") + "weight"].shape[:1])
        if not isinstance(value, Tensor):
            raise DataError(f"{path} lacks {theirs}", expected="the tensors of nanoGPT's GPT")
        state[name.ours] = value
    return config, state


def _config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    try:
        return ModelConfig.build(OTHERS, {k: v for k, v in fields.items() if v is not None}, source=str(path))
    except UsageError as error:
        raise DataError(str(error)) from None
