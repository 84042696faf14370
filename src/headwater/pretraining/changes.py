"""Change a run that has begun: its length in place, or everything else in a branch from one of its checkpoints.

`steps` may grow, or shrink to the updates that are done, with any schedule; a constant rate may begin to decay.
The updates that are done keep the rates that they had: a cosine or linear schedule continues on the curve of the
new length. The manifest records each change with the update at which it was made and the command until then.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.errors import FolderError, UsageError
from headwater.pretraining.recipe import PretrainConfig
from headwater.storage import Progress, Stage, has_manifest, read_manifest
from headwater.training import DECAY_SHARE

LENGTH = ("steps", "schedule")  # keys that may change in place


def change_length(stage: Stage, config: PretrainConfig, progress: Progress) -> None:
    """Adapt the manifest of the run in `stage.out`, which is locked, if it differs only in the length of training.

    Raises UsageError for fewer updates than were done, and for a schedule that would have changed these;
    FolderError if the checkpoints of a finished run are gone.
    """
    if not (changed := stage.changed(LENGTH)):
        return
    out = stage.out
    manifest = read_manifest(out)
    there = shipped.list_checkpoints(out)
    done = max((shipped.step_of(path.name) or 0 for path in there), default=0)
    if manifest.complete and not there:
        raise FolderError(
            f"the checkpoints of {out} are gone, and its optimizer's state with them",
            repair=f"Continue its model in a new run: --from {shlex.quote(str(out))} --out NEW",
        )
    _require_possible(config, changed, done, out)
    entry = {"at": done, "command": manifest.command, **changed}
    stage.config["changes"] = [*manifest.config.get("changes", []), entry]
    stage.reopen()
    words = ", ".join(f"{key} {old} → {stage.config[key]}" for key, old in changed.items())
    progress.note(f"{out} continues from update {done:,} with {words}")


def _require_possible(config: PretrainConfig, changed: dict[str, Any], done: int, out: Path) -> None:
    branch = f"Branch from a checkpoint: --from {shlex.quote(str(out))}@STEP --out NEW"
    if config.steps < done:
        raise UsageError(
            f"steps = {config.steps:,}, and {out} has done {done:,} updates",
            expected=f"at least {done:,}",
            repair=f"--set steps={done} ends it there. {branch}",
        )
    if "schedule" in changed:
        decays = changed["schedule"] == "constant" and config.schedule == "wsd"
        if not decays and done:
            raise UsageError(
                f"the schedule of {out} would have changed the {done:,} updates that it has done",
                expected="the same schedule, or wsd where it was constant",
                repair=branch,
            )
        if decays and (1 - DECAY_SHARE) * config.steps < done:
            least = -(-done * 10 // round(10 * (1 - DECAY_SHARE)))
            raise UsageError(
                f"with steps = {config.steps:,} the rate would have begun to fall before update {done:,}",
                expected=f"at least {least:,} steps, the last {DECAY_SHARE:.0%} of which decay",
                repair=f"--set schedule=wsd --set steps={least}",
            )


def set_aside_model(out: Path, progress: Progress) -> None:
    """Rename the model of a run that was finished and continues, so that it is not lost: `model-1000`."""
    changes = read_manifest(out).config.get("changes", [])
    finished = [change["at"] for change in changes if change["at"] == change.get("steps")]
    if has_manifest(out / "model") and finished and not (kept := out / f"model-{finished[-1]}").exists():
        (out / "model").rename(kept)
        progress.note(f"the model of the shorter run is now {kept}")
