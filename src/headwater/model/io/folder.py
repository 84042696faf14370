"""Read and write model folders in Hugging Face's layout.

A folder has `config.json`, `model.safetensors` (or shards with their index) and the tokenizer's files.
`huggingface` has the names, `weights` reads the bytes. Errors name a tensor that is missing, unexpected or of
another shape, and an output matrix that is not tied.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwater import shipped
from headwater.errors import DataError, FolderError
from headwater.model.config import ModelConfig, build_model
from headwater.model.io import huggingface
from headwater.model.io.single import read_nanogpt
from headwater.model.io.weights import (
    WEIGHT,
    WEIGHTS,
    StoredTensor,
    find_tensors,
    is_checkpoint,
    read_state,
    require_cast,
    weight_files,
    write_tensors,
)
from headwater.reading import read_json
from headwater.storage import has_manifest, open_folder, write_json

if TYPE_CHECKING:
    from headwater.model.config import Model

CONFIG, GENERATION = "config.json", "generation_config.json"
_READERS = 2  # threads: a third is hardly faster


def load_config(folder: Path) -> ModelConfig:
    """Return the configuration of the model in `folder`, without reading or checking its weights."""
    single = shipped.model_file(folder)
    return _read_config(folder)[1] if single is None else read_nanogpt(single)[0]


def is_untrained(folder: Path) -> bool:
    """Return whether the weights are as they were drawn: every bias is 0 and every gain of a LayerNorm 1."""
    if shipped.model_file(folder) is not None or is_checkpoint(folder):
        return False
    vectors = (stored.tensor for stored in find_tensors(folder).values() if stored.tensor.dim() == 1)
    return all(bool((values == values[0]).all()) for values in vectors)


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    unused: list[str] | None = None,
) -> Model:
    """Return the model in `folder`, in evaluation mode.

    Matrices and their biases get `dtype`; LayerNorms stay float32. unused: a list to append the names of tensors
    to that the model does not have, as of heads for tasks. Raises FolderError for a folder that is not a model, is
    damaged, or was altered since Headwater wrote it, DataError for weights that do not fit `config.json` or are
    not finite.
    """
    single, own = shipped.model_file(folder), None
    if single is not None:
        kind = ""
        config, own = read_nanogpt(single)
    else:
        kind, config = _read_config(folder)
    model = build_model(config, device="meta")
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    parameters = {
        name: (tuple(parameter.shape), torch.float32 if id(parameter) in norms else dtype)
        for name, parameter in model.named_parameters()
    }
    with _check_in_parallel(folder):
        if is_checkpoint(folder):
            state = {WEIGHT + name: torch.empty(shape) for name, (shape, _) in parameters.items()}
            read_state(folder, state)
            kind, own = "", {name.removeprefix(WEIGHT): tensor for name, tensor in state.items()}
        if own is None:
            located = find_tensors(folder)
        else:  # by our names
            located = {name: StoredTensor(single or folder, name, tensor) for name, tensor in own.items()}
        loaded = _read_weights(located, kind, config, parameters, device, folder, unused)
    model.load_state_dict(loaded, assign=True)
    return model.eval()


def model_reader(
    folder: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Callable[..., Model]:
    """Return a function that calls `load_model`, and can be called again after the first module was consumed.

    Another dtype may be given to it. It raises FolderError if the folder no longer has its present weight files.
    """
    expected = _weight_stamps(folder)

    def read(dtype: torch.dtype = dtype) -> Model:
        model = load_model(folder, dtype=dtype, device=device)
        if _weight_stamps(folder) != expected:
            raise FolderError(
                f"the weights in {folder} have changed since the model was loaded",
                expected="the same files",
                repair="Load the model again, with headwater.load",
            )
        return model

    return read


def save_model(
    model: Model,
    folder: Path,
    *,
    tokenizer: Any = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write `config.json`, `model.safetensors` and the tokenizer's files into an existing folder.

    `dtype` None keeps each tensor's dtype. The same weights give the same bytes. Raises MismatchError if the
    tokenizer has more ids than the model has rows.
    """
    config, kind = model.config, model.config.model_type
    if tokenizer is not None:
        tokenizer.require_rows(config.vocabulary)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    tensors: dict[str, Tensor] = {}
    for name in huggingface.tensor_names(kind, state):
        for theirs, part in zip(name.theirs, state[name.ours].chunk(len(name.theirs)), strict=True):
            tensor = part.t() if name.transposed else part
            tensors[theirs] = tensor.to(device="cpu", dtype=dtype or part.dtype).contiguous()
            if tensors[theirs].dtype != part.dtype:
                require_cast(theirs, tensor.cpu(), tensors[theirs])
    write_tensors(tensors, folder / WEIGHTS)
    save_description(config, folder, tokenizer=tokenizer, dtype=dtype or model.tokens.weight.dtype)


def save_description(
    config: ModelConfig,
    folder: Path,
    *,
    tokenizer: Any = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write everything of a model folder except its weights.

    These are `config.json`, the tokenizer's files and, for a model that continues texts, `generation_config.json`.
    """
    special: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
    if tokenizer is not None:
        ends, padding = tokenizer.roles.ends, tokenizer.roles.padding
        special["bos_token_id"] = tokenizer.start_of_text
        special["eos_token_id"] = list(ends) if len(ends) > 1 else tokenizer.end_of_text
        special |= {} if padding is None else {"pad_token_id": padding}
    elif config.model_type == "gpt2" and config.vocabulary > huggingface.END_OF_TEXT:
        special = dict.fromkeys(special, huggingface.END_OF_TEXT)
    stored = str(dtype).removeprefix("torch.")
    write_json(folder / CONFIG, huggingface.write_config(config, stored, special))
    known = {key: value for key, value in special.items() if value is not None}
    if known and config.is_causal:
        write_json(folder / GENERATION, known)
    if tokenizer is not None:
        tokenizer.save(folder, context=config.context)


def _weight_stamps(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return name, inode, size and modification time of each weight file."""
    single = shipped.model_file(folder)
    stats = [(path.name, path.stat()) for path in (weight_files(folder) if single is None else [single])]
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _read_config(folder: Path) -> tuple[str, ModelConfig]:
    if not (folder / CONFIG).is_file() or (folder / "adapter_config.json").is_file():
        raise _not_a_model(folder)
    content = read_json(folder / CONFIG)
    if not isinstance(content, dict):
        raise DataError(f"{folder / CONFIG} is a JSON {type(content).__name__}", expected="an object")
    if content.get("model_type") == "bert" and not huggingface.architectures(content):
        predicts = any(
            huggingface.plain_name(name).startswith(huggingface.OUTPUT) for name in find_tensors(folder)
        )
        content["architectures"] = [huggingface.BERT if predicts else huggingface.ENCODER]
    return huggingface.read_config(content, str(folder / CONFIG))


def _not_a_model(folder: Path) -> FolderError:
    """Return the error for a folder that is not a whole model; raise the one of an unfinished training."""
    if not folder.is_dir():
        return shipped.not_a_model(folder)
    if (folder / "adapter_config.json").is_file():
        return FolderError(
            f"{folder} has an adapter of PEFT, whose weights are added to those of another model",
            expected="a whole model",
            repair="Merge them in Python: model.merge_and_unload().save_pretrained(NEW)",
        )
    if (folder / "params_shapes.json").is_file() or (folder / "hparams.json").is_file():
        return FolderError(
            f"{folder} is an original OpenAI release",
            repair=f"Convert it: headwater convert {shlex.quote(str(folder))} MODEL",
        )
    if has_manifest(folder):
        open_folder(folder)  # names an unfinished training
    return FolderError(f"{folder} has no {CONFIG}", expected="a model folder", repair="Check the path")


@contextmanager
def _check_in_parallel(folder: Path) -> Iterator[None]:
    """Compare the folder with its manifest, if it has one, in parallel with the block.

    An error of the comparison replaces one of the block, because it names the cause.
    """
    if not has_manifest(folder):
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        check = pool.submit(open_folder, folder)
        try:
            yield
        finally:
            check.result()


def _read_weights(
    located: Mapping[str, StoredTensor],
    kind: str,
    config: ModelConfig,
    parameters: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    device: torch.device | str,
    folder: Path,
    unused: list[str] | None,
) -> dict[str, Tensor]:
    """Return every parameter by our name, in our orientation, checked.

    located: the tensors by their names in files of this kind of model; parameters: name -> shape and dtype;
    unused: see `load_model`.
    """
    names = list(huggingface.tensor_names(kind, parameters))
    stored = _stored_tensors(kind, names, located, folder)
    for name in names:
        rows, *rest = parameters[name.ours][0]
        expected = (rows // len(name.theirs), *rest)[:: -1 if name.transposed else 1]
        for part in stored[name.ours]:
            if (shape := tuple(part.tensor.shape)) != expected:
                raise DataError(
                    f"{part.name} in {part.path} has shape {shape}",
                    expected=f"{expected}, as its configuration says",
                )

    def read(name: huggingface.Name) -> tuple[str, Tensor]:
        dtype = parameters[name.ours][1]
        parts = [part.read(dtype, transposed=name.transposed) for part in stored[name.ours]]
        return name.ours, (parts[0] if len(parts) == 1 else torch.cat(parts)).to(device)

    # The largest first: when its file's pages are in memory, few copies are.
    names.sort(key=lambda name: -math.prod(parameters[name.ours][0]))
    with ThreadPoolExecutor(_READERS) as pool:
        loaded = dict(pool.map(read, names))
    if config.tied and config.predicts_tokens:
        _check_copies(config, stored, located)
    if unused is not None:
        others = located.keys() - {part.name for parts in stored.values() for part in parts}
        unused += sorted(name for name in others if huggingface.is_head(kind, huggingface.plain_name(name)))
    return loaded


def _check_copies(
    config: ModelConfig, stored: Mapping[str, list[StoredTensor]], located: Mapping[str, StoredTensor]
) -> None:
    """Check that an output matrix that is stored next to the tied one has the same values."""
    pairs = {huggingface.HEAD: "tokens.weight", huggingface.BERT_HEAD: "tokens.weight"}
    pairs |= {huggingface.BERT_HEAD_BIAS: "output_transform.bias"} if config.output_transform else {}
    plain = {huggingface.plain_name(name): tensor for name, tensor in located.items()}
    for head, ours in pairs.items():
        copy, original = plain.get(head), stored[ours][0]
        if copy is None or copy.name == original.name:
            continue
        if not torch.equal(copy.read(torch.float32), original.read(torch.float32)):
            raise DataError(
                f"{copy.name} in {copy.path} differs from {original.name}",
                expected="equal tensors, as tie_word_embeddings = true says",
                repair=f"If the model has two matrices, write tie_word_embeddings = false in its {CONFIG}",
            )


def _stored_tensors(
    kind: str, names: list[huggingface.Name], present: Mapping[str, StoredTensor], folder: Path
) -> dict[str, list[StoredTensor]]:
    """Return the file's tensors by our names, for files with and without the model's prefix, as "transformer."."""
    prefix = huggingface.PREFIXES.get(kind, "")
    renamed = {huggingface.plain_name(name): name for name in present}
    absent = "" if any(name.startswith(prefix) for name in renamed) else prefix
    plain = {name.ours: [part.removeprefix(absent) for part in name.theirs] for name in names}
    stored = {ours: [renamed.get(part, part) for part in parts] for ours, parts in plain.items()}
    if stored["tokens.weight"][0] not in present and huggingface.HEAD in renamed and "output.weight" not in stored:
        stored["tokens.weight"] = [renamed[huggingface.HEAD]]  # a tied matrix is stored once, under either name
    wanted = [name for parts in stored.values() for name in parts]
    missing = [name for name in wanted if name not in present]
    if missing:
        raise DataError(
            f"the weights in {folder} lack {_listing(missing)}",
            expected=f"{len(wanted)} tensors, as {CONFIG} says",
        )
    known = {*wanted, renamed.get(huggingface.HEAD, "")}
    unused = {
        name
        for plain, name in renamed.items()
        if huggingface.is_head(kind, plain) or huggingface.BUFFERS.search(plain)
    }
    unexpected = sorted(present.keys() - known - unused)
    if unexpected:
        raise DataError(
            f"the weights in {folder} have {_listing(unexpected)}, which the model does not have",
            expected=f"{len(wanted)} tensors, as {CONFIG} says",
        )
    return {ours: [present[name] for name in parts] for ours, parts in stored.items()}


def _listing(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
