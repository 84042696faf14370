"""Models that are one file, and what is in place of weights: found by name and first bytes, without torch.

nanoGPT's `ckpt.pt` has only the weights; `meta.pkl` of the data is its tokenizer. Git LFS leaves a short text in
place of a large file.
"""

from __future__ import annotations

from pathlib import Path

from headwater.errors import FolderError

CHECKPOINT = "ckpt.pt"
_PICKLED = (".pt", ".pth", ".ckpt", ".bin")
_POINTER = b"version https://git-lfs.github.com/spec/"


def model_file(path: Path) -> Path | None:
    """Return the file that is a whole model: `path` itself, or the checkpoint in a folder of nanoGPT."""
    if path.is_file() and path.suffix.lower() in _PICKLED:
        return path
    checkpoint = path / CHECKPOINT
    return checkpoint if checkpoint.is_file() and not (path / "config.json").is_file() else None


def refuse_pointer(path: Path) -> None:
    """Raise FolderError for the text that Git LFS leaves in place of a large file."""
    with path.open("rb") as handle:
        if handle.read(len(_POINTER)) == _POINTER:
            raise FolderError(
                f"{path} is a Git LFS pointer, not the weights: the repository was cloned without its large files",
                repair="In the repository: git lfs pull; or download the file itself",
            )
