"""Model folders: Hugging Face's layout, read and written.

A folder holds `config.json` and `model.safetensors` (or shards with their index) beside the tokenizer's files.
`huggingface` knows the names; here are the bytes, and every way in which a folder can be wrong: no weights, a
pickle, a cut or altered file, a tensor that is missing, unexpected, of another shape, or not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from headwater import provenance
from headwater.errors import DataError, FolderError, MismatchError
from headwater.model import build_model, huggingface
from headwater.model.config import ModelConfig
from headwater.storage import read_json, storage_errors, write_json

if TYPE_CHECKING:
    from headwater.model import Model

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")
_PICKLE_MAGIC = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_FLOATS = {"F64", "F32", "F16", "BF16"}


def load_config(folder: Path) -> ModelConfig:
    """The configuration of the model in `folder`, without its weights."""
    return _read_config(folder)[1]


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Model:
    """The model in `folder`, in evaluation mode.

    Matrices and their biases get `dtype`; LayerNorms stay float32. Raises FolderError for a folder that is no
    model or a damaged one, DataError for weights that are not what `config.json` says or not numbers.
    """
    kind, config = _read_config(folder)
    model = build_model(config, device="meta")
    norms = {
        f"{name}.{part}"
        for name, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for part in ("weight", "bias")
    }
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    loaded = {
        name: tensor.to(device=device, dtype=torch.float32 if name in norms else dtype)
        for name, tensor in _read_weights(folder, kind, config, shapes)
    }
    model.load_state_dict(loaded, assign=True)
    return model.eval()


def save_model(model: Model, folder: Path, *, tokenizer: Any = None, dtype: torch.dtype | None = None) -> None:
    """Write `config.json`, `model.safetensors` and the tokenizer's files into an existing folder.

    `dtype` None keeps each tensor's own. The same weights give the same bytes. Raises MismatchError when the
    tokenizer has more ids than the model has rows.
    """
    from safetensors.torch import save_file

    config = model.config
    end_of_text = None
    if tokenizer is not None:
        if tokenizer.vocabulary_size > config.vocabulary:
            raise MismatchError(
                f"the tokenizer has {tokenizer.vocabulary_size:,} ids and the model {config.vocabulary:,} rows",
                expected="a row for every id",
            )
        end_of_text = tokenizer.end_of_text
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    tensors = {
        name.theirs: _for_file(state[name.ours], name.transposed, dtype)
        for name in huggingface.tensor_names(huggingface.model_type(config), config, list(state))
    }
    stored = str(dtype or model.output_matrix().dtype).removeprefix("torch.")
    path = folder / WEIGHTS
    temporary = path.with_name(f".{WEIGHTS}.part")
    with storage_errors(path):
        save_file(tensors, temporary, metadata={"format": "pt"})
        temporary.replace(path)
    write_json(folder / CONFIG, huggingface.write_config(config, stored, end_of_text))
    if tokenizer is not None:
        tokenizer.save(folder)


def _for_file(tensor: Tensor, transposed: bool, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.t() if transposed else tensor
    return tensor.to(device="cpu", dtype=dtype or tensor.dtype).contiguous()


def _read_config(folder: Path) -> tuple[str, ModelConfig]:
    _check_folder(folder)
    content = read_json(folder / CONFIG)
    if not isinstance(content, dict):
        raise DataError(f"{folder / CONFIG} holds a JSON {type(content).__name__}", expected="an object")
    return huggingface.read_config(content, str(folder / CONFIG))


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        seen = "is a file" if folder.is_file() else "does not exist"
        raise FolderError(f"{folder} {seen}", expected="a model folder", repair="Check the path")
    if (folder / CONFIG).is_file():
        if (folder / provenance.MANIFEST).is_file():
            provenance.open_folder(folder)
        return
    if (folder / "params_shapes.json").is_file() or (folder / "hparams.json").is_file():
        raise FolderError(
            f"{folder} is an original OpenAI release", repair=f"Convert it: headwater convert {folder} MODEL"
        )
    if (folder / "model" / CONFIG).is_file():
        raise FolderError(
            f"{folder} is a run", expected="a model folder", repair=f"Give its model: {folder / 'model'}"
        )
    raise FolderError(f"{folder} has no {CONFIG}", expected="a model folder", repair="Check the path")


def _read_weights(
    folder: Path, kind: str, config: ModelConfig, shapes: dict[str, tuple[int, ...]]
) -> Iterator[tuple[str, Tensor]]:
    """Every parameter under our name and in our orientation, checked."""
    with _open_weights(folder) as files:
        places = {name: (path, handle) for path, handle in files.items() for name in handle.keys()}  # noqa: SIM118
        names = list(huggingface.tensor_names(kind, config, list(shapes)))
        stored = _stored_names(names, set(places), folder)
        for name in names:
            path, handle = places[stored[name.ours]]
            expected = shapes[name.ours][::-1] if name.transposed else shapes[name.ours]
            tensor = _read_tensor(path, handle, stored[name.ours], expected)
            yield name.ours, tensor.t().contiguous() if name.transposed else tensor
        head = places.get(huggingface.HEAD)
        if head is not None and stored["tokens.weight"] != huggingface.HEAD:
            _check_tied(*head, *places[stored["tokens.weight"]], stored["tokens.weight"])


def _stored_names(names: list[huggingface.Name], found: set[str], folder: Path) -> dict[str, str]:
    """Our name -> the file's, for files with and without the prefix "transformer."."""
    prefix = "transformer."
    bare = not any(name.startswith(prefix) for name in found)
    stored = {name.ours: name.theirs.removeprefix(prefix) if bare else name.theirs for name in names}
    if stored["tokens.weight"] not in found and huggingface.HEAD in found:
        stored["tokens.weight"] = huggingface.HEAD  # a tied matrix is kept once, under either name
    missing = [name for name in stored.values() if name not in found]
    if missing:
        raise DataError(
            f"the weights in {folder} lack {_listing(missing)}",
            expected=f"{len(stored)} tensors, as {CONFIG} says",
        )
    known = {*stored.values(), huggingface.HEAD}
    unexpected = sorted(name for name in found - known if not huggingface.is_buffer(name))
    if unexpected:
        raise DataError(
            f"the weights in {folder} hold {_listing(unexpected)}, which the model does not have",
            expected=f"{len(stored)} tensors, as {CONFIG} says",
        )
    return stored


def _listing(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _read_tensor(path: Path, handle: Any, name: str, expected: tuple[int, ...]) -> Tensor:
    part = handle.get_slice(name)
    shape = tuple(part.get_shape())
    if shape != expected:
        raise DataError(f"{name} in {path} has shape {shape}", expected=f"{expected}, as {CONFIG} says")
    if part.get_dtype() not in _FLOATS:
        raise DataError(f"{name} in {path} has dtype {part.get_dtype()}", expected="F32, BF16 or F16")
    tensor: Tensor = handle.get_tensor(name)
    # One pass at the speed of memory: a sum is finite unless a term is not (or, rarely, overflows).
    if not torch.isfinite(tensor.sum(dtype=torch.float32)):
        wrong = (~torch.isfinite(tensor)).sum().item()
        if wrong:
            what = "NaN" if tensor.isnan().any() else "infinity"
            raise DataError(
                f"{name} in {path} holds {what} ({wrong:,} of {tensor.numel():,} values)",
                repair="The training that wrote it diverged: use an earlier checkpoint",
            )
    return tensor


def _check_tied(path: Path, handle: Any, other_path: Path, other: Any, name: str) -> None:
    if not torch.equal(handle.get_tensor(huggingface.HEAD), other.get_tensor(name)):
        raise DataError(
            f"{huggingface.HEAD} in {path} differs from {name} in {other_path}",
            expected="one matrix for input and output, as GPT-1 and GPT-2",
        )


@contextmanager
def _open_weights(folder: Path) -> Iterator[dict[Path, Any]]:
    """The safetensors files of `folder`, opened: path -> handle."""
    handles: dict[Path, Any] = {}
    with ExitStack() as opened_files:
        for path in _weight_files(folder):
            try:
                handles[path] = opened_files.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                with path.open("rb") as opened:
                    if opened.read(4).startswith(_PICKLE_MAGIC):
                        raise _pickle_error(path) from None
                raise FolderError(
                    f"{path} is cut short or damaged: {str(error).rpartition(': ')[2]}",
                    repair="Copy or make it again",
                ) from None
        yield handles


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        names = sorted(set(index.get("weight_map", {}).values()))
        for name in names:
            if Path(name).name != name or not (folder / name).is_file():
                raise FolderError(f"{folder / INDEX} names {name}, which is not there", repair="Copy it again")
        if names:
            return [folder / name for name in names]
    pickles = sorted(path for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise _pickle_error(pickles[0])
    raise FolderError(f"{folder} has no weights", expected=WEIGHTS, repair="Copy or make the folder again")


def _pickle_error(path: Path) -> FolderError:
    return FolderError(
        f"{path} is no safetensors file; pickled weights can run code when they are opened, and are refused",
        expected=WEIGHTS,
        repair="Save the model as safetensors where it is trusted",
    )
