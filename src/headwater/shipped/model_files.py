"""Models that are one file, and what is in place of weights: found by name and first bytes, without torch.

A GGUF file, which the library `gguf` reads, has the tokenizer next to the weights. nanoGPT's `ckpt.pt` has only
the weights; `meta.pkl` of the data is its tokenizer. Git LFS leaves a short text in place of a large file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import FolderError, require_extra

GGUF, CHECKPOINT = ".gguf", "ckpt.pt"
_GGUF_VALUES = 1 << 21  # a vocabulary of 256,000 tokens has 1.3 million
_PICKLED = (".pt", ".pth", ".ckpt", ".bin")
_POINTER = b"version https://git-lfs.github.com/spec/"


def model_file(path: Path) -> Path | None:
    """Return the file that is a whole model: `path` itself, or the checkpoint in a folder of nanoGPT."""
    if path.is_file() and path.suffix.lower() in (GGUF, *_PICKLED):
        return path
    checkpoint = path / CHECKPOINT
    return checkpoint if checkpoint.is_file() and not (path / "config.json").is_file() else None


def is_gguf(path: Path) -> bool:
    """Return whether a path is a GGUF file."""
    return path.suffix.lower() == GGUF and path.is_file()


def open_gguf(path: Path) -> Any:
    """Return the library's reader of a GGUF file; raise FolderError for a damaged one."""
    with require_extra("export", "reading GGUF"):
        import gguf
    refuse_pointer(path)

    class Reader(gguf.GGUFReader):
        """The library's reader continues after the end of the file, as often as a count in the file says."""

        _values = 0

        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **named: Any) -> Any:
            self._values += 1
            if self._values > _GGUF_VALUES:
                raise ValueError(f"its header has more than {_GGUF_VALUES:,} values")
            found = super()._get(offset, dtype, count, *rest, **named)
            if len(found) != int(count):
                raise ValueError("it ends early, or a count in its header is wrong")
            return found

    with _whole_gguf(path):
        return Reader(path)


def gguf_value(reader: Any, key: str, default: Any = None) -> Any:
    """Return a value of a GGUF file's metadata; raise FolderError for a text that is not UTF-8."""
    field = reader.get_field(key)
    with _whole_gguf(Path(reader.data.filename)):
        return default if field is None else field.contents()


@contextmanager
def _whole_gguf(path: Path) -> Iterator[None]:
    """Turn what the library raises for a damaged file into FolderError."""
    try:
        yield
    except (ValueError, IndexError, KeyError, OverflowError, RecursionError) as error:
        raise FolderError(
            f"{path} is not a whole GGUF file: {str(error)[:100]}", repair="Copy it or make it again"
        ) from None


def refuse_pointer(path: Path) -> None:
    """Raise FolderError for the text that Git LFS leaves in place of a large file."""
    with path.open("rb") as handle:
        if handle.read(len(_POINTER)) == _POINTER:
            raise FolderError(
                f"{path} is a Git LFS pointer, not the weights: the repository was cloned without its large files",
                repair="In the repository: git lfs pull; or download the file itself",
            )
