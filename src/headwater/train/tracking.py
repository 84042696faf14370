"""The journal's lines in the user's own tracker: TensorBoard, trackio or Weights & Biases, by name.

`metrics.jsonl` is always written; these are beside it, only where asked for, and never needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headwater.errors import ResourceError

Tracker = Literal["tensorboard", "trackio", "wandb"]


class Tracking(NamedTuple):
    """Where lines go, and how that ends."""

    log: Callable[[dict[str, Any]], None]
    close: Callable[[], None]


def open_tracker(name: Tracker, out: Path, config: dict[str, Any]) -> Tracking:
    """Open the tracker for the run in `out`; raises ResourceError where its package is not installed."""
    if name == "tensorboard":
        writer = _module("torch.utils.tensorboard", name).SummaryWriter(str(out / "tensorboard"))

        def scalars(line: dict[str, Any]) -> None:
            for key, value in _figures(line).items():
                writer.add_scalar(key, value, line["step"])

        return Tracking(scalars, writer.close)
    # trackio keeps to the calls of Weights & Biases.
    module = _module(name, name)
    module.init(project="headwater", name=out.name, config=config)
    return Tracking(lambda line: module.log(_figures(line), step=line["step"]), module.finish)


def open_trackers(names: Sequence[Tracker], out: Path, config: dict[str, Any]) -> list[Tracking]:
    """All trackers asked for."""
    return [open_tracker(name, out, config) for name in names]


def _figures(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "step"}


def _module(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ResourceError(
            f"the tracker {name} is not installed", repair="Install it: pip install 'headwater[track]'"
        ) from None
