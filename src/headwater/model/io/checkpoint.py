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

from headwater.errors import DataError, FolderError
from headwater.model.io.weights import CHECKPOINT_RECORD, TensorReader, check_finite, find_tensors

_WHOLE = "state.safetensors"
_PREFIX = "weight."


def is_checkpoint(folder: Path) -> bool:
    """Return whether the folder is a checkpoint of a training."""
    return (folder / CHECKPOINT_RECORD).is_file()


def read_checkpoint(
    folder: Path, parameters: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device | str
) -> dict[str, Tensor]:
    """Return the weights of a checkpoint; `parameters`: name -> shape and dtype.

    Raises FolderError for a damaged file, DataError for a tensor that is missing, of another shape or not finite.
    """
    if (folder / _WHOLE).is_file():
        places, reader = find_tensors(folder), TensorReader()
        for name, (shape, _) in parameters.items():
            stored = places.get(_PREFIX + name)
            if stored is None or stored.shape != shape:
                seen = "is not there" if stored is None else f"has shape {stored.shape}"
                raise DataError(f"{name} in {folder / _WHOLE} {seen}", expected=f"{shape}, as config.json says")
        return {
            name: reader.read(name, places[_PREFIX + name], dtype=dtype).to(device)
            for name, (_, dtype) in parameters.items()
        }
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    from torch.distributed.checkpoint.api import CheckpointException

    state = {_PREFIX + name: torch.empty(shape) for name, (shape, _) in parameters.items()}
    with warnings.catch_warnings():  # one process reads on purpose
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            checkpoint.load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
        except (CheckpointException, Exception) as error:  # the first is not a subclass of the second
            failures = getattr(error, "failures", None) or {0: (error, None)}
            cause = str(next(iter(failures.values()))[0]).partition("\n")[0]
            raise FolderError(
                f"the shards of the checkpoint {folder} cannot be read: {cause}"[:300],
                expected="those that the ranks of one training wrote",
                repair="Use an earlier checkpoint",
            ) from None
    for name in parameters:
        check_finite(name, folder, state[_PREFIX + name])
    return {name: state[_PREFIX + name].to(device, dtype) for name, (_, dtype) in parameters.items()}
