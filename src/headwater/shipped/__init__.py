"""Models that ship inside the package, and what the name of a model stands for.

Each is a model folder beside this file, made by `tools/ship.py` from a run: Hugging Face's files in bf16, the
curve and the scores that its card is written from, and the card. They need no other file and no network.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
CONFIG = "config.json"
DEFAULT = "gpt2-mini"  # what is generated from and served where no model is named
TRAINED_ON = "free text, mostly books"


def names() -> list[str]:
    """The models that ship, by name."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG}"))


def resolve(model: str | Path) -> Path:
    """Return the folder of a model: what exists under this path, else the model that ships under this name.

    A run folder means the model in it. A path that is neither is returned as it is, for the reader to refuse. A
    folder here wins over a shipped model of its name: see `is_shadowed`.
    """
    path = Path(model)
    if not path.exists() and str(model) in names():
        return FOLDER / path
    if not (path / CONFIG).is_file() and (path / "model" / CONFIG).is_file():
        return path / "model"
    return path


def is_shadowed(model: str | Path) -> bool:
    """Whether a folder here has the name of a model that ships, and is taken in its place."""
    return str(model) in names() and Path(model).exists()


def alternative() -> str:
    """What completes a repair "Check the path": the models that ship."""
    return f", or take a model that ships with Headwater: {', '.join(names())}" if names() else ""


def name_of(folder: Path) -> str:
    """What a model is called by its folder: `small` for runs/small/model, else the folder's own name."""
    return folder.parent.name if folder.name == "model" and folder.parent.name else folder.name
