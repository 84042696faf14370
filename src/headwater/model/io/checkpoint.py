"""Open a checkpoint of pre-training as a model: weights with our names, next to the optimizer's state.

A checkpoint folder has `config.json` and the tokenizer's files as a model folder has. One process wrote all its
tensors to one file, or several ranks wrote the shards of torch's distributed checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from headwater.model.io.weights import CHECKPOINT_RECORD, TensorReader, find_tensors

_WHOLE = "state.safetensors"
_PREFIX = "weight."


def is_checkpoint(folder: Path) -> bool:
    """Return whether the folder is a checkpoint of a training."""
    return (folder / CHECKPOINT_RECORD).is_file()


def read_checkpoint(
    folder: Path, parameters: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device | str
) -> dict[str, Tensor]:
    """Return the weights of a checkpoint; `parameters`: name -> shape and dtype.

    Raises DataError for a tensor that is not finite.
    """
    if (folder / _WHOLE).is_file():
        places, reader = find_tensors(folder), TensorReader()
        return {
            name: reader.read(name, places[_PREFIX + name], dtype=dtype).to(device)
            for name, (_, dtype) in parameters.items()
        }
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    state = {_PREFIX + name: torch.empty(shape) for name, (shape, _) in parameters.items()}
    with warnings.catch_warnings():  # one process reads on purpose
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        checkpoint.load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return {name: state[_PREFIX + name].to(device, dtype) for name, (_, dtype) in parameters.items()}
