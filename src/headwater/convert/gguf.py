"""GGUF files of GPT-2 models, for llama.cpp and programs based on it.

Names and metadata are those of llama.cpp's `gpt2` architecture; the file includes the tokenizer. Only matrices are
rounded: norms, biases and positions stay float32. q8_0 stores 32 weights in 8 bits each and a common scale; a
matrix whose rows are not a multiple of 32 is f16.
"""

from __future__ import annotations

import errno
import filecmp
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from headwater.errors import FolderError, MismatchError, UsageError, require_extra
from headwater.model import require_cast, tensor_names
from headwater.storage import atomic_path, storage_errors
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

GgufPrecision = Literal["f32", "f16", "q8_0"]
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # token types of the format
_ROW_OF_Q8_0 = 32


def write_gguf(model: Model, tokenizer: Tokenizer, path: Path, precision: GgufPrecision = "f16") -> None:
    """Write `model` and `tokenizer` atomically as one GGUF file.

    Raises UsageError for a model that is not a GPT-2, MismatchError for a tokenizer of another kind or with more
    ids than rows, FolderError if another file exists at `path`, ResourceError without the package `gguf`.
    """
    with require_extra("export", "writing GGUF"):
        import gguf
    _require_gpt2(model, tokenizer)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as part:
            _write_model(gguf, part, model, tokenizer, precision)
            _check_whole(gguf, part)
            if path.exists() and not filecmp.cmp(path, part, shallow=False):
                raise FolderError(
                    f"{path} already contains something else",
                    repair="Choose another destination, or remove it first",
                )


def _require_gpt2(model: Model, tokenizer: Tokenizer) -> None:
    """Raise UsageError or MismatchError unless llama.cpp computes what the model and the tokenizer do."""
    config = model.config
    usual = config.activation == "gelu-tanh" and config.attention_factor(config.layers - 1) == 1
    if config.model_type != "gpt2" or not usual:
        raise UsageError(
            f"llama.cpp does not compute this {config.model_type}",
            expected="a GPT-2 with GELU in its tanh form and the usual scale of attention",
            repair="Convert it to a Hugging Face folder instead: a destination without .gguf",
        )
    if tokenizer.kind != "gpt2":
        raise MismatchError(f"the tokenizer is of kind {tokenizer.kind}", expected="kind gpt2")
    tokenizer.require_rows(config.vocabulary)


def _write_model(gguf: Any, path: Path, model: Model, tokenizer: Tokenizer, precision: GgufPrecision) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_block_count(config.layers)
    writer.add_head_count(config.heads)
    writer.add_layer_norm_eps(config.norm_epsilon)
    writer.add_file_type({"f32": 0, "f16": 1, "q8_0": 7}[precision])
    _add_tokenizer(writer, tokenizer, config.vocabulary)
    state = model.state_dict()
    for name in tensor_names("gguf", state):
        _add_tensor(writer, gguf, name.theirs[0], state[name.ours].detach().float().cpu().numpy(), precision)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _check_whole(gguf: Any, path: Path) -> None:
    """Raise OSError if a full disk truncated the file, which numpy does not report."""
    try:
        reader = gguf.GGUFReader(path)
        end = max(int(tensor.data_offset) + int(tensor.n_bytes) for tensor in reader.tensors)
        expected = end + -end % int(reader.alignment)
    except (ValueError, IndexError):
        expected = -1
    if path.stat().st_size != expected:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _add_tokenizer(writer: Any, tokenizer: Tokenizer, rows: int) -> None:
    vocabulary = tokenizer.vocabulary
    spare = rows - len(vocabulary.tokens)  # rows without an id, of a padded matrix
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*vocabulary.tokens, *(f"<|unused {number}|>" for number in range(spare))])
    ordinary = {token.content for token in vocabulary.added if not token.special}
    types = [
        _NORMAL if token in vocabulary.plain_ids else _USER_DEFINED if token in ordinary else _CONTROL
        for token in vocabulary.tokens
    ]
    writer.add_token_types([*types, *([_UNUSED] * spare)])
    writer.add_token_merges([f"{left} {right}" for left, right in vocabulary.merges])
    if tokenizer.start_of_text is not None:
        writer.add_bos_token_id(tokenizer.start_of_text)
    if tokenizer.end_of_text is not None:
        writer.add_eos_token_id(tokenizer.end_of_text)
    if len(tokenizer.roles.ends) > 1:  # llama.cpp ends a text at the token of the end of a turn, too
        writer.add_eot_token_id(tokenizer.roles.ends[1])
    if tokenizer.roles.padding is not None:
        writer.add_pad_token_id(tokenizer.roles.padding)
    writer.add_add_bos_token(False)


def _add_tensor(writer: Any, gguf: Any, name: str, values: Any, precision: GgufPrecision) -> None:
    types = gguf.GGMLQuantizationType
    if values.ndim < 2 or precision == "f32" or name == "position_embd.weight":
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    elif precision == "q8_0" and values.shape[1] % _ROW_OF_Q8_0 == 0:
        writer.add_tensor(name, gguf.quantize(values, types.Q8_0), raw_dtype=types.Q8_0)
    else:
        tensor = torch.from_numpy(values)
        require_cast(name, tensor, tensor.half())
        writer.add_tensor(name, values.astype(np.float16))
