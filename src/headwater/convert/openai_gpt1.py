"""The release of GPT-1 (openai/finetune-transformer-lm): `params_shapes.json` and flat `params_N.npy`.

The arrays are the concatenated parameters, divided into equal parts. Positions come first, then the token matrix,
then twelve tensors a block; linear maps are width-1 convolutions, (1, in, out), the transpose of ours. The files
do not have the number of heads: by default each has 64 dimensions (Radford et al. 2018, section 4.1).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headwater.convert.openai_gpt2 import load_release
from headwater.errors import DataError, FolderError, UsageError
from headwater.model import Faithful, ModelConfig, build_model, preset
from headwater.reading import read_json

if TYPE_CHECKING:
    from headwater.model import Model

SHAPES = "params_shapes.json"
_HEAD_WIDTH = 64
# The order of a block's tensors in the release.
_PLACES = ("attention.query_key_value", "attention.projection", "norm_1", "mlp.expand", "mlp.contract", "norm_2")
_BLOCK = tuple(f"{where}.{part}" for where in _PLACES for part in ("weight", "bias"))


def read_release(folder: Path, heads: int | None = None, faithful: Faithful = "code") -> Model:
    """Return the model of a GPT-1 release, float32.

    Raises FolderError or DataError if files are missing, truncated or inconsistent, UsageError if the number of
    heads is needed.
    """
    shapes = _read_shapes(folder)
    config = _config(folder, shapes, heads).faithful_to(faithful)
    model = build_model(config, device="meta")
    names = ["positions.weight", "tokens.weight"]
    names += [f"blocks.{layer}.{name}" for layer in range(config.layers) for name in _BLOCK]
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.from_numpy(_read_flat(folder, sum(sizes))).split(sizes)
    tensors = [(name, name, part.view(shape)) for name, part, shape in zip(names, parts, shapes, strict=True)]
    return load_release(model, tensors, folder / SHAPES)


def _read_shapes(folder: Path) -> list[tuple[int, ...]]:
    path = folder / SHAPES
    try:
        shapes = [tuple(int(size) for size in shape) for shape in read_json(path)]
    except (TypeError, ValueError, OverflowError):
        shapes = []
    blocks, rest = divmod(len(shapes) - 2, len(_BLOCK))
    positive = all(size > 0 for shape in shapes for size in shape)
    if blocks < 1 or rest or len(shapes[0]) != 2 or len(shapes[1]) != 2 or not positive:
        raise DataError(
            f"{path} lists {len(shapes)} shapes", expected=f"two embeddings and {len(_BLOCK)} a block, as GPT-1's"
        )
    return shapes


def _config(folder: Path, shapes: list[tuple[int, ...]], heads: int | None) -> ModelConfig:
    (context, width), (vocabulary, _) = shapes[:2]
    if heads is None:
        if width % _HEAD_WIDTH:
            raise UsageError(
                f"{folder} does not say how many heads a width of {width} is divided into",
                repair="Give it: --heads N",
            )
        heads = width // _HEAD_WIDTH
    layers = (len(shapes) - 2) // len(_BLOCK)
    shape: dict[str, Any] = {"vocabulary": vocabulary, "context": context, "width": width}
    return preset("gpt1", layers=layers, heads=heads, **shape).of_others()


def _read_flat(folder: Path, expected: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    parts: list[np.ndarray[Any, Any]] = []
    while (path := folder / f"params_{len(parts)}.npy").is_file():
        try:
            # Mapped, so that a false header allocates no memory.
            part = np.lib.format.open_memmap(path, mode="r")
        except Exception as error:  # parsing the header, a Python literal, can raise many types
            raise FolderError(
                f"{path} is cut short or damaged: {error}", repair="Copy or download it again"
            ) from None
        if part.dtype.kind != "f":
            raise DataError(f"{path} has {part.dtype}", expected="floating-point numbers")
        parts.append(part.astype(np.float32, copy=False).ravel())
    numbers = sum(part.size for part in parts)
    if numbers != expected:
        raise FolderError(
            f"the {len(parts)} files params_0.npy … in {folder} have {numbers:,} numbers",
            expected=f"{expected:,}, as {SHAPES} says",
            repair="Copy the whole release",
        )
    return np.concatenate(parts)
