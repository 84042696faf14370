"""nanoGPT's checkpoint, `ckpt.pt`: the arguments of its model, the weights and the optimizer in one file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from headwater.errors import DataError, UsageError
from headwater.model.config import OTHERS, ModelConfig, build_model
from headwater.model.io import huggingface
from headwater.model.io.weights import read_pickled

_ARGUMENTS = {"n_layer": "layers", "n_head": "heads", "n_embd": "width", "block_size": "context"}


def read_nanogpt(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the configuration and the weights of a checkpoint, by our names.

    Raises FolderError for a damaged file, DataError for another model.
    """
    content = read_pickled(path)
    model = content.get("model") if isinstance(content, dict) else None
    arguments = content.get("model_args") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(arguments, dict):
        raise DataError(
            f"{path} is not a checkpoint of nanoGPT: it has no model_args next to its weights",
            expected="a ckpt.pt of nanoGPT, or a folder with config.json next to the weights",
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
    fields = shape | rows | {"activation": "gelu"}
    try:
        config = ModelConfig.build(OTHERS, {k: v for k, v in fields.items() if v is not None}, source=str(path))
    except UsageError as error:
        raise DataError(str(error)) from None
    state = {}
    for name in huggingface.tensor_names("gpt2", build_model(config, device="meta").state_dict()):
        (theirs,) = name.theirs
        value = weights.get(theirs)
        weight = weights.get(theirs.removesuffix("bias") + "weight")
        if value is None and theirs.endswith(".bias") and not arguments.get("bias", True) and weight is not None:
            value = torch.zeros(weight.shape[:1])
        if not isinstance(value, Tensor):
            raise DataError(f"{path} lacks {theirs}", expected="the tensors of nanoGPT's GPT")
        state[name.ours] = value
    return config, state
