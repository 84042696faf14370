"""Read and write safetensors files, and detect what can be wrong with them.

Files are memory-mapped: `find_tensors` reads no weights. Tensors that are used as stored share one mapping of
their file (private, so that training may write to it); one that must be transposed or converted is copied from a
mapping of its own, which ends. Errors: no weights, a truncated or altered file, a tensor with NaN or infinity.

PyTorch's own files (`pytorch_model.bin`, `ckpt.pt`) are read with `torch.load(weights_only=True)` alone: tensors,
numbers, texts and containers of them, and no code of the file. A checkpoint of training has its weights with our
names next to the optimizer's state: in one file of one process, or in shards of torch's distributed checkpoint
(`read_state`).
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headwater.errors import DataError, FolderError, MismatchError
from headwater.reading import check_name, read_json
from headwater.storage import atomic_path

WEIGHTS = "model.safetensors"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
LOST_SHARE = 0.01
INDEX = "model.safetensors.index.json"
CHECKPOINT_RECORD = "state.json"
# torch's message about a name that the file would import.
_GLOBAL = re.compile(r"(?:Unsupported global|GLOBAL|class) [`'\"]?([\w.]+)")
_POINTER = b"version https://git-lfs.github.com/spec/"  # the text that Git LFS leaves in place of a large file
_CHECKPOINT = "state.safetensors"
WEIGHT = "weight."  # begins the names of the weights in a checkpoint
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class StoredTensor(NamedTuple):
    """One tensor of a file; its bytes are read when it is used."""

    path: Path
    name: str
    tensor: Tensor

    def read(self, dtype: torch.dtype, *, transposed: bool = False) -> Tensor:
        """Return the tensor, or the transpose of a matrix, contiguous, as `dtype`.

        Raises DataError if it is not a floating-point tensor, or has NaN or infinity.
        """
        stored = self.tensor
        if stored.dtype not in _DTYPES:
            expected = "one of " + ", ".join(map(str, _DTYPES))
            raise DataError(f"{self.name} in {self.path} has dtype {stored.dtype}", expected=expected)
        if (transposed or dtype != stored.dtype) and self.path.suffix == ".safetensors":
            file: Any = safe_open(self.path, "pt")
            stored = file.get_tensor(self.name)
        check_finite(self.name, self.path, stored)
        tensor = stored.to(dtype)
        if transposed:
            # One copy of a whole matrix of one dtype, for which torch has a fast kernel.
            tensor = torch.empty(tensor.t().shape, dtype=dtype).copy_(tensor.t())
        return tensor


def find_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of the weight files in `folder`, by its name in the file.

    Raises FolderError if there are no weights, or damaged ones.
    """
    return {name: tensor for path in weight_files(folder) for name, tensor in _open_file(path).items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, such as a head, in float32.

    Raises FolderError for a damaged file, DataError for NaN or infinity.
    """
    return {name: tensor.read(torch.float32) for name, tensor in _open_file(path).items()}


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file atomically; the same tensors give the same bytes."""
    from safetensors.torch import save_file

    with atomic_path(path) as part:
        save_file(dict(tensors), part, metadata={"format": "pt"})


def require_cast(name: str, before: Tensor, after: Tensor) -> None:
    """Raise DataError if a conversion made values infinite, or more than LOST_SHARE of the others zero."""
    infinite = int((~torch.isfinite(after)).sum())
    lost = int(((after == 0) & (before != 0)).sum())
    if not infinite and lost <= LOST_SHARE * before.numel():
        return
    effect = f"{infinite:,} values infinite" if infinite else f"{lost:,} of {before.numel():,} values zero"
    precision = str(after.dtype).removeprefix("torch.")
    raise DataError(
        f"{precision} would make {effect} in {name}",
        expected=f"values of at most {torch.finfo(after.dtype).max:g}" if infinite else "a wider range",
        repair="Choose a precision that holds them: --precision f32",
    )


def check_finite(name: str, path: Path, tensor: Tensor) -> None:
    """Raise DataError, naming the tensor and its file, if it has NaN or infinity."""
    # One fast pass: a sum is finite unless a term is not (or, rarely, it overflows).
    if torch.isfinite(tensor.sum(dtype=torch.float32)):
        return
    wrong = int((~torch.isfinite(tensor)).sum())
    if wrong:
        value = "NaN" if tensor.isnan().any() else "infinity"
        raise DataError(
            f"{name} in {path} has {value} ({wrong:,} of {tensor.numel():,} values)",
            repair="The training that wrote it diverged: use an earlier checkpoint",
        )


def weight_files(folder: Path) -> list[Path]:
    """Return the files with a model's weights: one, or the shards that the index names."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _shards(folder / INDEX)
    if (folder / CHECKPOINT_RECORD).is_file():  # of this package's training: one file, or the shards of ranks
        return sorted(folder.glob("*.safetensors"))
    if (folder / PICKLED).is_file():
        return [folder / PICKLED]
    if (folder / PICKLED_INDEX).is_file():
        return _shards(folder / PICKLED_INDEX)
    raise FolderError(
        f"{folder} has no weights", expected=f"{WEIGHTS} or {PICKLED}", repair="Copy or make the folder again"
    )


def _shards(index: Path) -> list[Path]:
    content = read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise _damaged(index, "it names no files")
    names = sorted({str(name) for name in shards.values()})
    for name in names:
        if Path(name).name != name or not (index.parent / name).is_file():
            raise FolderError(f"{index} names {name}, which is not there", repair="Copy the folder again")
        check_name(index.parent / name)
    return [index.parent / name for name in names]


def _open_file(path: Path) -> dict[str, StoredTensor]:
    """Return each tensor of a safetensors file or of torch.save's; raise FolderError for a damaged one."""
    _refuse_pointer(path)
    if path.suffix != ".safetensors":
        content = read_pickled(path)
        if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
            raise FolderError(
                f"{path} is not a model's weights", expected="tensors by name", repair="Copy it again"
            )
        return {str(name): StoredTensor(path, str(name), value.detach()) for name, value in content.items()}
    try:
        file: Any = safe_open(path, "pt")  # checks that the tensors fill the file without overlap
        return {name: StoredTensor(path, name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, str(error).removeprefix("Error while deserializing header: ")) from None


def _damaged(path: Path, how: str) -> FolderError:
    return FolderError(f"{path} is cut short or damaged: {how}", repair="Copy it or make it again")


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as handle:
        if handle.read(len(_POINTER)) == _POINTER:
            raise FolderError(
                f"{path} is a Git LFS pointer, not the weights: the repository was cloned without its large files",
                repair="In the repository: git lfs pull; or download the file itself",
            )


def read_pickled(path: Path) -> Any:
    """Return what `torch.save` wrote to a file; raise FolderError for a file that needs more than data."""
    _refuse_pointer(path)
    try:
        # Files of torch before 1.6 are not zip files, and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever torch raises for a damaged file
        named = _GLOBAL.search(str(error))
        raise FolderError(
            f"{path} is more than weights: it needs {named[1]}"
            if named
            else f"{path} is cut short, damaged or pickled by something else than torch.save",
            expected="tensors, numbers and texts alone, which torch.load(weights_only=True) reads",
            repair="A file with other objects can run code when it is opened. Copy it again, or save the model as "
            "safetensors on a machine where the file is trusted",
        ) from None


def is_checkpoint(folder: Path) -> bool:
    """Return whether the folder is a checkpoint of a training."""
    return (folder / CHECKPOINT_RECORD).is_file()


def read_state(folder: Path, state: Mapping[str, Tensor], *, distributed: bool = False) -> None:
    """Fill the tensors of `state` from a checkpoint, written by any number of ranks.

    distributed: every rank calls this for its part. Raises FolderError for damaged files, MismatchError for the
    checkpoint of another model.
    """
    whole = folder / _CHECKPOINT
    if whole.exists() and not distributed:
        stored = _open_file(whole)
        for name, tensor in state.items():
            if name not in stored or stored[name].tensor.shape != tensor.shape:
                raise MismatchError(f"{whole} has no {name} of shape {tuple(tensor.shape)}")
            with torch.no_grad():
                tensor.copy_(stored[name].tensor)
        return
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():  # one process reads on purpose
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            reader = HuggingFaceStorageReader(str(folder))
            checkpoint.load(dict(state), storage_reader=reader, no_dist=not distributed)
        except (CheckpointException, Exception) as error:  # the first is not a subclass of the second
            failures = getattr(error, "failures", None) or {0: (error, None)}
            cause = str(next(iter(failures.values()))[0]).partition("\n")[0]
            raise FolderError(
                f"the shards of the checkpoint {folder} cannot be read: {cause}"[:300],
                expected="those that the ranks of one training wrote",
                repair="Use an earlier checkpoint",
            ) from None
