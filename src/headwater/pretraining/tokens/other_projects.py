"""Token files of other projects, nanoGPT's, llm.c's and build-nanogpt's, as tokens folders.

| format | files | layout |
|---|---|---|
| `nanogpt` | `train.bin`, `val.bin` | uint16 ids, without a header |
| `llm.c` | `*train*.bin`, `*val*.bin` | 256 int32 (20240520, version 1, number of ids, zeros), then uint16 ids |
| `build-nanogpt` | `*train*.npy`, `*val*.npy` | one row of uint16 |

modded-nanogpt uses llm.c's layout. All numbers are little-endian. Only llm.c's header names a vocabulary, GPT-2's;
the other two projects use the same one. None has the documents' starts: in a tokens folder a document begins at
the stream's start and after every `<|endoftext|>`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headwater.errors import DataError, FolderError, MismatchError
from headwater.pretraining.tokens.pack import MINIMUM_TOKENS, TOKEN_PARTS, finish_tokens, tokens_stage
from headwater.pretraining.tokens.shards import ShardWriter, check_ids
from headwater.storage import SILENT, Progress, has_manifest
from headwater.tokenizer import Tokenizer, read_meta, token_dtype

Format = Literal["nanogpt", "llm.c", "build-nanogpt"]
MAGIC, VERSION = 20240520, 1
_HEADER = 256  # int32
_NAMES = {"train": "train", "validation": "val"}  # a part's name in the other projects' files
_NANOGPT = ("train.bin", "val.bin")
_BLOCK = 1 << 22  # ids at a time
_OTHER_MAGIC = {20240801: "ids of Llama 3's vocabulary", 20240522: "a multiple-choice evaluation"}


def holds_tokens(source: Path) -> bool:
    """Return whether `source` is another project's token file or a folder of them."""
    if source.is_file():  # a model's weights may have the extension .bin
        return (
            source.suffix == ".npy" or source.name in _NANOGPT or (source.suffix == ".bin" and _is_llm_c(source))
        )
    if not source.is_dir() or (source / "config.json").is_file():
        return False
    return not has_manifest(source) and any(_part_files(source, part) for part in TOKEN_PARTS)


def _is_llm_c(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(4) == MAGIC.to_bytes(4, "little")


def convert_tokens(
    source: Path, out: Path, tokenizer: str | None = None, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Write the token files in the folder `source` as the tokens folder `out`.

    `tokenizer` None is GPT-2's original, which the three projects use. Returns the format and, for each part,
    {"tokens", "documents", "bytes"}. Raises DataError for a damaged or too short file or an id beyond the
    vocabulary, FolderError if a part has no files.
    """
    files = _files_of(source)
    meta = source / "meta.pkl"
    if tokenizer is None and meta.is_file():
        tokenizer = str(source)
        progress.note(f"The ids in {source} are of the characters that its meta.pkl lists")
    if tokenizer is None:
        progress.note(f"The ids in {source} are assumed to be of GPT-2's original tokenizer (gpt2)")
    named = tokenizer or "gpt2"
    loaded = Tokenizer.load(named)
    if meta.is_file():
        _require_vocabulary(loaded, named, meta)
    opened = {part: [(path, *_open(path)) for path in files[part]] for part in TOKEN_PARTS}
    formats = {kind for shards in opened.values() for _, kind, _ in shards}
    if len(formats) > 1:
        raise FolderError(f"{source} mixes {' and '.join(sorted(formats))} files", expected="one format")
    (kind,) = formats
    stage = tokens_stage(out, named, loaded, {"source": source}, {"format": kind})
    if not stage.is_complete():
        with stage.write() as work:
            counts: dict[str, dict[str, int]] = {}
            for part in TOKEN_PARTS:
                shards = [(path, ids) for path, _, ids in opened[part]]
                counts[part] = _import_part(work, part, shards, loaded)
                if counts[part]["tokens"] < MINIMUM_TOKENS:
                    raise DataError(
                        f"the {part} part of {source} has {counts[part]['tokens']:,} tokens",
                        expected=f"at least {MINIMUM_TOKENS}",
                    )
            finish_tokens(stage, work, loaded, counts)
    result = {"source": kind, "destination": str(out), "tokenizer": loaded.kind}
    return result | {"counts": stage.config["counts"]}


def _files_of(source: Path) -> dict[str, list[Path]]:
    """Return the files of each part; raise FolderError if one has none, or if a file could be of both."""
    if source.is_file():
        raise FolderError(f"{source} is one token file", expected="the folder with the train and the val files")
    files: dict[str, list[Path]] = {part: _part_files(source, part) for part in TOKEN_PARTS}
    for part in TOKEN_PARTS:
        if not files[part]:
            raise FolderError(
                f"{source} has no {part} part",
                expected=f"files that end in .bin or .npy and have {_NAMES[part]} in their names",
            )
    for path in set(files["train"]) & set(files["validation"]):
        raise FolderError(
            f"{path} has train and val in its name, so its part is ambiguous",
            expected="one of the two words",
            repair="Rename it",
        )
    return files


def _part_files(folder: Path, part: str) -> list[Path]:
    word = _NAMES[part]
    names = (path for path in folder.iterdir() if path.suffix in (".bin", ".npy") and path.is_file())
    return sorted(path for path in names if word in path.stem and not path.name.startswith("documents-"))


def _open(path: Path) -> tuple[Format, np.ndarray]:
    """Map one file; return its format and its ids, (tokens,) uint16."""
    if path.suffix == ".npy":
        try:
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # parsing the header, a Python literal, can raise many types
            raise DataError(f"{path} is damaged: {error}", expected="a .npy file of uint16") from None
        if array.ndim != 1 or array.dtype != np.uint16:
            raise DataError(f"{path} has {array.dtype} {array.shape}", expected="one row of uint16")
        return "build-nanogpt", array
    size = path.stat().st_size
    with path.open("rb") as handle:
        header = np.frombuffer(handle.read(4 * _HEADER), dtype="<i4") if size >= 4 * _HEADER else None
    if header is not None and (header[0] == MAGIC or not header[3:].any()):
        return "llm.c", _after_header(path, header, size)
    if path.name not in _NANOGPT:
        start = "too short for a header" if header is None else f"begins with {header[0]}"
        raise DataError(
            f"{path} {start}",
            expected=f"the magic number {MAGIC} of llm.c's files, or the names train.bin and val.bin of nanoGPT's",
        )
    if size % 2 or not size:
        raise DataError(f"{path} has {size:,} bytes", expected="uint16 ids, of two bytes each")
    return "nanogpt", np.memmap(path, dtype="<u2", mode="r")


def _after_header(path: Path, header: np.ndarray, size: int) -> np.ndarray:
    magic, version, count = (int(value) for value in header[:3])
    if magic != MAGIC:
        kind = f": {_OTHER_MAGIC[magic]}" if magic in _OTHER_MAGIC else ""
        raise DataError(
            f"{path} has the magic number {magic}{kind}", expected=f"{MAGIC}: ids of GPT-2's vocabulary"
        )
    if version != VERSION:
        raise DataError(f"{path} has version {version}", expected=str(VERSION))
    expected = 4 * _HEADER + 2 * count
    if size != expected or count < 1:
        state = "is truncated" if size < expected else "does not fit its header"
        raise DataError(
            f"{path} {state}: {size:,} bytes", expected=f"{expected:,}, for the {count:,} ids of its header"
        )
    return np.memmap(path, dtype="<u2", mode="r", offset=4 * _HEADER)


def _require_vocabulary(tokenizer: Tokenizer, named: str, path: Path) -> None:
    """Raise MismatchError for a tokenizer that differs from the vocabulary described next to the tokens."""
    size, characters = read_meta(path)
    seen = ""
    if size != tokenizer.vocabulary_size:
        seen = f"{path} describes {size:,} tokens, and the tokenizer {named} has {tokenizer.vocabulary_size:,}"
    else:
        for character, index in (characters or {}).items():
            if tokenizer.decode([index]) != character:
                seen = f"id {index} is {character!r} in {path}, and another token in the tokenizer {named}"
                break
    if seen:
        raise MismatchError(
            seen,
            expected="the tokenizer of these tokens",
            repair="Leave --tokenizer out" if characters else "Give the right one with --tokenizer",
        )


def _import_part(
    work: Path, part: str, shards: list[tuple[Path, np.ndarray]], tokenizer: Tokenizer
) -> dict[str, int]:
    lengths = np.array([len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocabulary_size)])
    end = tokenizer.end_of_text
    if end is not None:
        lengths[end] = 0
    tokens, documents, size = sum(len(ids) for _, ids in shards), 0, 0
    begins = True  # the next id begins a document
    with closing(ShardWriter(work, part, tokens, token_dtype(tokenizer.vocabulary_size))) as writer:
        for path, ids in shards:
            check_ids(ids, tokenizer.vocabulary_size, path)
            for first in range(0, len(ids), _BLOCK):
                block = np.asarray(ids[first : first + _BLOCK])
                size += int(lengths[block].sum())
                starts = np.zeros(int(begins), np.int64)
                if end is not None:
                    starts = np.append(starts, np.flatnonzero(block == end) + 1)
                begins = len(starts) > 0 and int(starts[-1]) == len(block)
                starts = starts[: len(starts) - begins]
                documents += len(starts)
                writer.add(block, starts)
    return {"tokens": tokens, "documents": documents, "bytes": size}
