"""The bytes of safetensors files: where each tensor lies, and reading one at a time into its own memory.

Reading maps nothing and copies nothing twice: a tensor is read straight into the memory it will live in, so that
loading takes the memory of the weights and little more. Here is every way in which files can be wrong: none
there, a pickle, one cut short or altered, a tensor that is not a number.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwater.errors import DataError, FolderError
from headwater.storage import flush_folder, read_json, storage_errors

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")
_PICKLE_MAGIC = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_HEADER_LIMIT = 100_000_000  # the format's own
# A transposed matrix is turned over in strips of this many rows, which stay in the processor's cache.
_STRIP = 32


class Place(NamedTuple):
    """Where one tensor lies: bytes `begin` to `end` of `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def find_tensors(folder: Path) -> dict[str, Place]:
    """Every tensor of the safetensors files in `folder`, by its name in the file.

    Raises FolderError when there are no weights, only pickled ones, or damaged ones.
    """
    return {name: place for path in _weight_files(folder) for name, place in _read_header(path).items()}


def read_tensor(name: str, place: Place, *, dtype: torch.dtype, transposed: bool = False) -> Tensor:
    """One tensor, or the transpose of a matrix, contiguous, as `dtype`.

    Raises DataError when it is no floating-point tensor or holds NaN or infinity.
    """
    if place.dtype not in _DTYPES:
        raise DataError(f"{name} in {place.path} has dtype {place.dtype}", expected="one of " + ", ".join(_DTYPES))
    stored = torch.empty(place.shape, dtype=_DTYPES[place.dtype])
    with place.path.open("rb", buffering=0) as handle:
        handle.seek(place.begin)
        view = stored.view(-1).view(torch.uint8).numpy().data
        while view.nbytes:
            count = handle.readinto(view)
            if not count:
                raise _damaged(place.path, f"{name} is not whole")
            view = view[count:]
    check_finite(name, place.path, stored)
    if not transposed:
        return stored.to(dtype)
    turned = torch.empty(place.shape[::-1], dtype=dtype)
    for start in range(0, place.shape[0], _STRIP):
        turned[:, start : start + _STRIP].copy_(stored[start : start + _STRIP].t())
    return turned


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file that appears whole; the same tensors give the same bytes."""
    from safetensors.torch import save_file

    temporary = path.with_name(f".{path.name}.part")
    with storage_errors(path):
        try:
            save_file(dict(tensors), temporary, metadata={"format": "pt"})
            temporary.chmod(0o644)  # the library writes for the owner alone
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def check_finite(name: str, path: Path, tensor: Tensor) -> None:
    """Raise DataError, naming the tensor and its file, when it holds NaN or infinity."""
    # One pass at the speed of memory: a sum is finite unless a term is not (or, rarely, it overflows).
    if torch.isfinite(tensor.sum(dtype=torch.float32)):
        return
    wrong = int((~torch.isfinite(tensor)).sum())
    if wrong:
        what = "NaN" if tensor.isnan().any() else "infinity"
        raise DataError(
            f"{name} in {path} holds {what} ({wrong:,} of {tensor.numel():,} values)",
            repair="The training that wrote it diverged: use an earlier checkpoint",
        )


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict) or not shards:
            raise _damaged(folder / INDEX, "it names no files")
        names = sorted({str(name) for name in shards.values()})
        for name in names:
            if Path(name).name != name or not (folder / name).is_file():
                raise FolderError(
                    f"{folder / INDEX} names {name}, which is not there", repair="Copy the folder again"
                )
        return [folder / name for name in names]
    pickles = sorted(path for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise _pickle(pickles[0])
    raise FolderError(f"{folder} has no weights", expected=WEIGHTS, repair="Copy or make the folder again")


def _read_header(path: Path) -> dict[str, Place]:
    """The table at the start of a file: 8 bytes of length, then JSON; every byte behind it is accounted for."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        start = handle.read(8)
        if start.startswith(_PICKLE_MAGIC):
            raise _pickle(path)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise _damaged(path, f"it has {size:,} bytes and its header claims {length:,}")
        try:
            table = json.loads(handle.read(length))
            places = {
                name: _place(path, entry, 8 + length) for name, entry in table.items() if name != "__metadata__"
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _damaged(path, "its header cannot be read") from None
    reached = 8 + length
    for place in sorted(places.values(), key=lambda place: place.begin):
        if place.begin != reached:
            raise _damaged(path, "its tensors overlap or leave gaps")
        reached = place.end
    if reached != size:
        raise _damaged(path, f"it has {size:,} bytes where its header tells of {reached:,}")
    return places


def _place(path: Path, entry: Mapping[str, Any], data_start: int) -> Place:
    begin, end = entry["data_offsets"]
    shape = tuple(int(size) for size in entry["shape"])
    dtype = str(entry["dtype"])
    if dtype in _DTYPES and end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise ValueError
    return Place(path, dtype, shape, data_start + int(begin), data_start + int(end))


def _damaged(path: Path, how: str) -> FolderError:
    return FolderError(f"{path} is cut short or damaged: {how}", repair="Copy it or make it again")


def _pickle(path: Path) -> FolderError:
    return FolderError(
        f"{path} is no safetensors file: pickled weights can run code when they are opened, and are refused",
        expected=WEIGHTS,
        repair="Save the model as safetensors where it is trusted",
    )
