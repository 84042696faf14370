"""Checkpoints: what a killed run goes on from, bit for bit.

One folder a checkpoint, `step-00001000`. Its tensors are safetensors, so that nothing in it is ever executed:
one file where one process holds all the state, else the shards of torch's distributed checkpoint, which any
number of ranks can read. It is written aside, hashed and renamed, in the background where one process holds it
all; a checkpoint that fails to be written is a warning, and the one before it stays. On reading, every hash is
checked, whatever the size, and a damaged checkpoint gives way to the one before it.
"""

from __future__ import annotations

import re
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from headwater.errors import FolderError, HeadwaterError, MismatchError
from headwater.storage.files import read_json, storage_errors, write_json
from headwater.storage.provenance import open_folder
from headwater.storage.stage import Stage
from headwater.train.parallel import Ranks

_RECORD = "state.json"
_WHOLE = "state.safetensors"  # all tensors, where one process held them all


class Checkpoints:
    """The checkpoints of one run: the newest `keep`, and those that were pinned."""

    def __init__(self, folder: Path, *, keep: int, ranks: Ranks, note: Callable[[str], None]) -> None:
        self.folder, self.keep, self.ranks, self.note = folder, keep, ranks, note
        self.pinned: set[int] = set()  # steps whose checkpoints a person may want, as before a spike
        self._writer: threading.Thread | None = None

    def save(
        self,
        step: int,
        state: Mapping[str, Tensor],
        record: Mapping[str, Any],
        pinned: set[int],
        *,
        sharded: bool,
    ) -> None:
        """Write a checkpoint of `state` after `step` updates; `record` is what else a resumed run must know.

        The checkpoints of the steps in `pinned` are not rotated away.
        """
        self.wait()
        if sharded:
            self._write(step, dict(state), dict(record), pinned, sharded=True)
        elif self.ranks.is_first:
            snapshot = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
            self._writer = threading.Thread(target=self._write, args=(step, snapshot, dict(record), set(pinned)))
            self._writer.start()

    def wait(self) -> None:
        """Return when the checkpoint being written is on the disk."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that is whole, and its record; None where there is none yet.

        Raises FolderError when there are checkpoints and every one is damaged.
        """
        damaged = []
        for path in reversed(self._all()):
            try:
                open_folder(path, "checkpoint", hashes=True)
                return path, read_json(path / _RECORD)
            except HeadwaterError as error:
                damaged.append(path)
                self.note(f"{path.name} is damaged and is passed over: {error.seen}")
        if damaged:
            raise FolderError(
                f"every checkpoint in {self.folder} is damaged",
                repair="Remove that folder to start the run again",
            )
        return None

    def load(self, path: Path, state: dict[str, Tensor], *, sharded: bool) -> None:
        """Fill the tensors of `state` from a checkpoint, in place, whatever number of ranks wrote it."""
        whole = path / _WHOLE
        if whole.exists() and not sharded:
            with torch.no_grad(), safe_open(whole, framework="pt") as saved:
                _check_names(path, set(saved.keys()), set(state))
                for name, tensor in state.items():
                    tensor.copy_(saved.get_tensor(name))
            return
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint import HuggingFaceStorageReader

        with warnings.catch_warnings():  # one process reading is what is meant
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            checkpoint.load(state, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=not sharded)

    def check(self, path: Path) -> None:
        """Raise FolderError where a checkpoint is damaged."""
        if self.ranks.is_first:
            open_folder(path, "checkpoint", hashes=True)

    def path_of(self, step: int) -> Path:
        """Where the checkpoint after `step` updates lies."""
        return self.folder / f"step-{step:08d}"

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint, unchecked; None where there is none."""
        return max(map(_step_of, self._all()), default=None)

    def _write(
        self,
        step: int,
        state: dict[str, Tensor],
        record: dict[str, Any],
        pinned: set[int],
        sharded: bool = False,
    ) -> None:
        stage = Stage(self.path_of(step), kind="checkpoint", config={"step": step}, inputs={})
        try:
            whole = self.ranks.is_first and self._is_whole(stage)
            if self.ranks.share(whole) if sharded else whole:
                return
            if sharded:
                self._write_sharded(stage, state, record)
            else:
                with stage.write() as work:
                    save_file(state, work / _WHOLE)
                    write_json(work / _RECORD, record)
            self._remove_old(step, pinned)
        except HeadwaterError as error:
            self.note(f"Warning: no checkpoint was written at step {step}: {error} The run goes on.")

    def _is_whole(self, stage: Stage) -> bool:
        """Whether the checkpoint is there; one that was damaged since makes room."""
        try:
            return stage.is_complete(hashes=True)
        except FolderError:
            shutil.rmtree(stage.out, ignore_errors=True)
            return False

    def _write_sharded(self, stage: Stage, state: dict[str, Tensor], record: dict[str, Any]) -> None:
        """All ranks write into the folder that the first one opened; it takes its name when all are done.

        Raises StorageError on the first rank when there can be no folder, on all when one of them cannot write.
        """
        try:
            with ExitStack() as stack:
                work, refusal = None, None
                if self.ranks.is_first:
                    try:
                        work = stack.enter_context(stage.write())
                    except HeadwaterError as error:
                        refusal = error
                work = self.ranks.share(work)
                if work is not None:
                    _write_shards(work, state)  # returns when every rank has written
                    if self.ranks.is_first:
                        write_json(work / _RECORD, record)
            if refusal is not None:
                raise refusal
        finally:
            self.ranks.wait()

    def _remove_old(self, step: int, pinned: set[int]) -> None:
        """Keep the newest up to `step`: later ones are damaged, and the run is on its way to write them again."""
        if not self.ranks.is_first:
            return
        for path in [path for path in self._all() if _step_of(path) <= step][: -self.keep]:
            if _step_of(path) not in pinned:
                shutil.rmtree(path, ignore_errors=True)

    def _all(self) -> list[Path]:
        """The checkpoints there are, oldest first; what a person put beside them is none."""
        found = self.folder.glob("step-*")
        return sorted((p for p in found if p.is_dir() and p == self.path_of(_step_of(p))), key=_step_of)


def _write_shards(folder: Path, state: dict[str, Tensor]) -> None:
    """Write this rank's part; what one rank meets is raised on all."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        checkpoint.save(state, storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:  # no Exception: nothing else would catch it
        with storage_errors(folder):
            raise next(iter(error.failures.values()))[0] from None


def _check_names(path: Path, saved: set[str], expected: set[str]) -> None:
    if saved != expected:
        name = sorted(saved ^ expected)[0]
        where = "only in the checkpoint" if name in saved else "only in the model"
        raise MismatchError(f"{path} belongs to another model: {name} is {where}")


def _step_of(path: Path) -> int:
    digits = path.name.removeprefix("step-")
    return int(digits) if re.fullmatch("[0-9]{1,18}", digits) else -1
