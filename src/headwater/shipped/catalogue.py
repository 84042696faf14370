"""What the name of a model means: a folder here, a model that ships, a run, a hub name, an encoder or a file.

A run that is unfinished, stopped or still training means its newest undamaged checkpoint. A checkpoint has the
files of a model folder next to the optimizer's state, so that every command opens it. Reading one does not disturb
the run.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path

from headwater.errors import FolderError, ResourceError, nearest, require_extra
from headwater.reading import expand_home
from headwater.shipped.encoders import ENCODERS, fetch_encoder, find_encoder
from headwater.storage import has_manifest, open_folder, read_manifest

FOLDER = Path(__file__).parent
CONFIG = "config.json"
_CHECKPOINTS = "checkpoints"
DEFAULT = "gpt2-mini"  # the model of `generate` and `serve` if none is named
STARTS = (DEFAULT, "gpt2-mini-ko")  # the models that quickstart may continue from, by the language of the text
_STEP = re.compile(r"(?:step-)?0*([0-9]{1,18})")
_LOG = logging.getLogger(__name__)
_PICKLED = (".pt", ".pth", ".ckpt", ".bin")
# What the cards say about the text of a shipped model.
TRAINED_ON = "free text"
_IN_CACHE = re.compile("/models--([^/]+?)--([^/]+)/snapshots/[^/]+$")  # the layout of huggingface_hub


def names() -> list[str]:
    """Return the names of the models that ship."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG}"))


def folder_of(name: str) -> Path:
    """Return the folder of a model that ships, also where a folder here has its name."""
    return FOLDER / name


def find(model: str | Path, *, download: bool = False) -> Path:
    """Return the path of a model: what exists under this path, else the model that ships under this name.

    A run folder means the model in it, and a quickstart folder that of its run. A string may also be a hub name,
    or the name of an encoder (`encoders`). A path that is none of these is returned unchanged. A folder here wins
    over a shipped model of its name: see `is_shadowed`.

    Raises ResourceError for a hub name or an encoder that is not on this machine, unless `download` is set.
    """
    model = expand_home(model)
    if isinstance(model, str) and is_hub_name(model):
        return from_hub(model, download)
    path = Path(model)
    if not path.exists() and str(model) in names():
        return FOLDER / path
    if not path.exists() and str(model) in ENCODERS:
        return fetch_encoder(str(model)) if download else find_encoder(str(model))
    if (path / CONFIG).is_file():
        return path
    for run in (path, path / "run"):  # a quickstart folder means its run
        if (checkpoint := find_checkpoint(run)) is not None:
            return checkpoint
        if (run / "model" / CONFIG).is_file():
            return run / "model"
    return path


def resolve(model: str | Path, *, download: bool = False) -> Path:
    """Return what `find` returns; raise FolderError if it does not exist."""
    path = find(model, download=download)
    if not path.exists():
        raise not_a_model(path)
    return path


def origin_of(path: str | Path) -> str | None:
    """Return what made the shipped model in this folder, for people; None for any other folder."""
    folder = Path(path).resolve()
    if folder.parent != FOLDER.resolve() or folder.name not in names():
        return None
    return f"ships with Headwater, trained on {TRAINED_ON}: its README.md has the text, the recipe and the scores"


def model_file(path: Path) -> Path | None:
    """Return the file that is a whole model: `path` itself, or `ckpt.pt` in a folder of nanoGPT."""
    if path.is_file() and path.suffix.lower() in _PICKLED:
        return path
    checkpoint = path / "ckpt.pt"
    return checkpoint if checkpoint.is_file() and not (path / CONFIG).is_file() else None


def split_name(model: str) -> tuple[str | None, str]:
    """Return the name and the model of `NAME=MODEL`; None and `model` if it has no name or is an existing path."""
    name, separator, path = model.partition("=")
    return (name, path) if separator and not Path(model).exists() else (None, model)


def not_a_model(path: Path) -> FolderError:
    """Return the error about a path that is not a folder, and not the name of a model."""
    known = [*names(), *ENCODERS]
    return FolderError(
        f"{path} is a file" if path.is_file() else f"{path} does not exist",
        expected=f"a model folder (config.json and model.safetensors), {', '.join(known)}, or a hub name "
        "(OWNER/NAME)",
        repair=nearest(str(path), known) or "Check the path",
    )


def is_shadowed(model: str | Path) -> bool:
    """Return whether a folder here has the name of a model that ships, and is used in its place."""
    return str(model) in names() and Path(model).exists()


def name_of(folder: Path) -> str:
    """Return the name of a model by its folder: `small` for runs/small/model, else the folder's own name."""
    return folder.parent.name if folder.name == "model" and folder.parent.name else folder.name


def is_hub_name(name: str) -> bool:
    """Return whether a name that is not a path here has the form of a hub name: OWNER/NAME.

    Raises FolderError for a step of which the run here has no checkpoint, as in runs/small@1200.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        return False
    return not Path(name).exists() and find_checkpoint(Path(name)) is None


def hub_name(folder: str | Path) -> str | None:
    """Return the hub name of a folder in the hub's local cache; None for another folder."""
    match = _IN_CACHE.search(Path(folder).as_posix())
    return f"{match[1]}/{match[2]}" if match else None


def from_hub(name: str, download: bool) -> Path:
    """Return the folder of a hub model in the local cache; `download` allows fetching it."""
    with require_extra("hub", f"{name} is not a folder, and a hub name", ", or check the path"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    try:
        wanted = ["*.json", "*.safetensors", "merges.txt", "vocab.txt"]
        return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not download))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, RuntimeError) as error:
        if download:
            reason = str(error).strip().partition("\n")[0]
            raise ResourceError(f"{name} could not be fetched from the hub: {reason}") from error
        raise ResourceError(
            f"{name} is neither a folder nor a hub model in the local cache",
            repair=f"Check the path, or fetch it: --download, in Python download=True, or hf download {name}",
        ) from None


def find_checkpoint(path: Path) -> Path | None:
    """Return the checkpoint that `run`, `run/checkpoints/1200` or `run@1200` means; None for another path.

    A run that is complete, or has no checkpoint that can be opened as a model, is not a checkpoint. Raises
    FolderError for a step of which the run has no checkpoint.
    """
    run, at, step = str(path).rpartition("@")
    if at and (Path(run) / _CHECKPOINTS).is_dir() and not path.exists():
        return _of_step(Path(run), step)
    if path.parent.name == _CHECKPOINTS and path.parent.is_dir() and not path.exists():
        return _of_step(path.parent.parent, path.name)
    if not (path / _CHECKPOINTS).is_dir() or not has_manifest(path) or read_manifest(path).complete:
        return None
    return next((checkpoint for checkpoint in reversed(list_checkpoints(path)) if _is_good(checkpoint)), None)


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    steps = {path: step_of(path.name) for path in (run / _CHECKPOINTS).glob("step-*") if path.is_dir()}
    return sorted((path for path, step in steps.items() if step is not None), key=lambda path: steps[path] or 0)


def step_of(name: str) -> int | None:
    """Return the step that `1200` or `step-00001200` names; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _of_step(run: Path, name: str) -> Path:
    step, checkpoints = step_of(name), list_checkpoints(run)
    for path in checkpoints:
        if step_of(path.name) == step:
            return path
    steps = ", ".join(f"{step_of(path.name):,}" for path in checkpoints) or "none"
    raise FolderError(
        f"{run} has no checkpoint of update {name}", expected=f"one of {steps}", repair="Choose one of these"
    )


def _is_good(path: Path) -> bool:
    stats = [file.stat() for file in path.iterdir() if file.is_file()]
    return _is_intact(path, tuple(sorted((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)))


@cache
def _is_intact(path: Path, stamps: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a checkpoint is undamaged, and warn if not; stamps: of its files, which are hashed once."""
    try:
        open_folder(path, "checkpoint")
    except FolderError as error:
        _LOG.warning("%s is damaged and is skipped: %s", path.name, error.seen)
        return False
    return True
