"""OpenAI's releases of GPT-1 (openai/finetune-transformer-lm) and GPT-2 (openai/gpt-2).

GPT-1: `params_shapes.json` and flat `params_N.npy`. The arrays are the concatenated parameters, divided into equal
parts. Positions come first, then the token matrix, then twelve tensors a block. The files do not have the number
of heads: each has 64 dimensions (Radford et al. 2018, section 4.1). GPT-2: `hparams.json` and a TensorFlow
checkpoint, which `tensor_bundle` reads; its tensors are named `model/h0/attn/c_attn/w`. In both, linear maps are
width-1 convolutions, (1, in, out), the transpose of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headwater.convert.tensor_bundle import TensorBundle
from headwater.errors import DataError, FolderError
from headwater.model import build_model, preset, tensor_names
from headwater.reading import read_json

if TYPE_CHECKING:
    from headwater.model import Model

SHAPES = "params_shapes.json"
_HEAD_WIDTH = 64
# The order of a block's tensors in the release.
_PARTS = ("attention.query_key_value", "attention.projection", "norm_1", "mlp.expand", "mlp.contract", "norm_2")
_BLOCK = tuple(f"{where}.{part}" for where in _PARTS for part in ("weight", "bias"))
HPARAMS = "hparams.json"
_INDEX = ".index"  # the suffix of a checkpoint's first file
_SIZES = {"vocabulary": "n_vocab", "context": "n_ctx", "width": "n_embd", "heads": "n_head", "layers": "n_layer"}


def read_gpt1(folder: Path) -> Model:
    """Return the model of a GPT-1 release, float32.

    Raises FolderError or DataError if files are missing, truncated or inconsistent.
    """
    shapes = _read_shapes(folder)
    (context, width), (vocabulary, _) = shapes[:2]
    if width % _HEAD_WIDTH:
        raise DataError(f"{folder / SHAPES} has the width {width}", expected=f"a multiple of {_HEAD_WIDTH}")
    shape: dict[str, Any] = {"vocabulary": vocabulary, "context": context, "width": width}
    layers, heads = (len(shapes) - 2) // len(_BLOCK), width // _HEAD_WIDTH
    config = preset("gpt1", layers=layers, heads=heads, **shape).of_others()
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


def read_gpt2(folder: Path) -> Model:
    """Return the model of a GPT-2 release, float32.

    Raises FolderError if files are missing, truncated or altered, DataError if a tensor is missing, unexpected, of
    another shape or not finite.
    """
    hparams = read_json(folder / HPARAMS)
    for name in _SIZES.values():
        size = hparams.get(name) if isinstance(hparams, dict) else None
        if not isinstance(size, int) or size < 1:
            raise DataError(
                f"{folder / HPARAMS} has {name} = {str(size)[:40]!r}", expected="a whole number above 0"
            )
    shape = {ours: hparams[theirs] for ours, theirs in _SIZES.items()}
    model = build_model(preset("gpt2-small", **shape).of_others(), device="meta")
    bundle = TensorBundle(_prefix(folder))
    parameters = model.state_dict()
    theirs = {name: _release_name(name) for name in parameters}
    missing = sorted(set(theirs.values()) - set(bundle.entries))
    unexpected = sorted(set(bundle.entries) - set(theirs.values()))
    if missing or unexpected:
        wrong = f"lacks {missing[0]}" if missing else f"has {unexpected[0]}, which GPT-2 does not have"
        raise DataError(f"the checkpoint {bundle.prefix} {wrong}", expected=f"what {HPARAMS} says")
    tensors = ((name, theirs[name], torch.tensor(bundle.read(theirs[name]))) for name in parameters)
    return load_release(model, tensors, folder / HPARAMS)


def load_release(model: Model, tensors: Iterable[tuple[str, str, Tensor]], says: Path) -> Model:
    """Load (name, name in the release, tensor) of all parameters; a linear map is (1, in, out) in the release.

    says: the file that decided the model's shape. Raises DataError for another shape, NaN or infinity.
    """
    parameters, loaded = model.state_dict(), {}
    for name, theirs, tensor in tensors:
        if tensor.dim() == 3 and len(tensor) == 1:
            tensor = tensor[0].t()
        if tensor.shape != parameters[name].shape:
            raise DataError(
                f"{theirs} in {says.parent} has the shape {tuple(tensor.shape)}",
                expected=f"{tuple(parameters[name].shape)} for the width {model.config.width} in {says.name}",
            )
        if not torch.isfinite(tensor).all():
            raise DataError(f"{theirs} in {says.parent} has NaN or infinity")
        loaded[name] = tensor.clone(memory_format=torch.contiguous_format)
    model.load_state_dict(loaded, assign=True)
    return model.eval()


def _release_name(name: str) -> str:
    """`blocks.3.mlp.expand.weight` -> `model/h3/mlp/c_fc/w`: Hugging Face's names come from these."""
    (theirs,) = next(tensor_names("gpt2", [name])).theirs
    module, _, part = theirs.replace("transformer.", "model.").replace(".h.", ".h").rpartition(".")
    ending = "/b" if part == "bias" else "/g" if "norm" in name else "/w" if name.startswith("blocks") else ""
    return module.replace(".", "/") + ending


def _prefix(folder: Path) -> Path:
    """Return the path without extension of the only checkpoint."""
    indices = sorted(folder.glob(f"*{_INDEX}"))
    if len(indices) != 1:
        raise FolderError(
            f"{folder} has {len(indices)} checkpoints (*{_INDEX})", expected="one", repair="Copy the whole release"
        )
    return indices[0].with_suffix("")
