"""Checkpoints, from which a killed run resumes bit for bit.

Each is a folder, `step-00001000`, with safetensors files, which execute nothing: one file if one process has all
the state, else the shards of torch's distributed checkpoint, which any number of ranks can read. The state is
copied to the CPU's memory. While training continues, a thread writes it to a temporary folder, hashes it and
renames it. A failure is a warning, and the previous checkpoint is kept. Reading verifies every hash and uses the
newest undamaged checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from headwater import shipped
from headwater.display import byte_size, counted
from headwater.errors import FolderError, HeadwaterError, MismatchError, StorageError
from headwater.model import read_state
from headwater.reading import read_json
from headwater.storage import Stage, open_folder, read_manifest, storage_errors, write_json
from headwater.training.parallel import Ranks

_RECORD = "state.json"
_WHOLE = "state.safetensors"  # all tensors, if one process had them all


class Checkpoints:
    """The checkpoints of one run: the newest `keep`, and the best one.

    sharded: each rank has a part of the state, and writes it. describe: writes into a checkpoint what makes it a
    model that other commands open. run: the identity of the run, which each of its checkpoints records.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        ranks: Ranks,
        note: Callable[[str], None],
        sharded: bool = False,
        describe: Callable[[Path], None] | None = None,
        run: str = "",
    ) -> None:
        self.describe, self.run = describe, run
        self.folder, self.keep, self.note, self.sharded = folder, keep, note, sharded
        # The ranks that write: all, or the first one alone.
        self.ranks = ranks.for_a_thread() if sharded else replace(ranks, count=1)
        self._written: Future[None] | None = None

    def save(self, step: int, state: Mapping[str, Tensor], record: Mapping[str, Any], best: int | None) -> None:
        """Write a checkpoint of `state` after `step` updates, in a thread; every rank must call this.

        record: a resumed run's other state. The checkpoint of the step `best` is not removed.
        """
        self.wait()
        if self.sharded or self.ranks.is_first:
            copied = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
            writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
            self._written = writer.submit(self._write, step, copied, dict(record), best)
            writer.shutdown(wait=False)

    def require_space(self, state: Mapping[str, Tensor], ranks: Ranks) -> None:
        """Raise StorageError on every rank if a disk that is written to cannot hold all checkpoints and the model.

        Checkpoints are those that are kept, the best one, and the one that is written.
        """
        run = self.folder.parent
        count = max(1, self.keep + 2 - len(shipped.list_checkpoints(run)))
        size = sum(tensor.nbytes for tensor in state.values())
        needed = free = count * size + size // 3
        if self.sharded or ranks.is_first:
            free = shutil.disk_usage(run).free
        if not ranks.any(free < needed):
            return
        space = byte_size(free) if free < needed else "too little"
        raise StorageError(
            f"{run} has {space} of free space, and {counted(count, 'checkpoint')} and the model take "
            f"{byte_size(needed)}",
            repair="Free some space, choose another output folder, or keep fewer: --set keep=1",
        )

    def wait(self) -> None:
        """Wait until the current checkpoint is written; raise the error of a rank that is gone."""
        if self._written is not None:
            self._written.result()
            self._written = None

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest undamaged checkpoint and its record, or None if there is no checkpoint.

        Raises FolderError if all checkpoints are damaged, MismatchError if one is of another run.
        """
        checkpoints = shipped.list_checkpoints(self.folder.parent)
        for path in checkpoints:
            with suppress(FolderError):  # a damaged manifest, which `is_good` notes
                if read_manifest(path).config.get("run") != self.run:
                    raise MismatchError(
                        f"{path} belongs to another run than {self.folder.parent}",
                        expected="checkpoints of one run: its recipe, its seed and its inputs",
                        repair="Move it to another folder, and run the command again",
                    )
        for path in reversed(checkpoints):
            if self.is_good(path):
                return path, read_json(path / _RECORD)
        if checkpoints:
            raise FolderError(
                f"every checkpoint in {self.folder} is damaged",
                repair="Remove that folder to start the run again",
            )
        return None

    def is_good(self, path: Path) -> bool:
        """Return whether a checkpoint is undamaged; if not, note the damage."""
        try:
            open_folder(path, "checkpoint", hashes=True)
        except HeadwaterError as error:
            self.note(f"{path.name} is damaged and is skipped: {error.seen}")
            return False
        return True

    def load(self, path: Path, state: dict[str, Tensor]) -> None:
        """Load a checkpoint, written by any number of ranks, into the tensors of `state`."""
        read_state(path, state, distributed=self.sharded)

    def path_of(self, step: int) -> Path:
        """Return the path of the checkpoint after `step` updates."""
        return self.folder / f"step-{step:08d}"

    def _write(self, step: int, state: dict[str, Tensor], record: dict[str, Any], best: int | None) -> None:
        stage = Stage(self.path_of(step), kind="checkpoint", config={"step": step, "run": self.run}, inputs={})
        try:
            if not self.ranks.on_first(lambda: self._is_whole(stage)):
                self._fill(stage, state, record)
                self._remove_old(step, best)
        except HeadwaterError as error:
            self.note(f"Warning: no checkpoint was written at step {step}: {error}")

    def _is_whole(self, stage: Stage) -> bool:
        """Return whether the checkpoint exists; remove a damaged one."""
        try:
            return stage.is_complete(hashes=True)
        except FolderError:
            shutil.rmtree(stage.out, ignore_errors=True)
            return False

    def _fill(self, stage: Stage, state: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Write from all ranks into a folder that the first one creates, and renames at the end.

        Raises StorageError on all ranks if the first one cannot create the folder, or if one cannot write.
        """
        try:
            with ExitStack() as stack:
                work = self.ranks.on_first(lambda: stack.enter_context(stage.write()))
                if self.sharded:
                    _write_shards(work, state, self.ranks.group)  # returns when every rank has written
                else:
                    save_file(state, work / _WHOLE)
                if self.ranks.is_first:
                    if self.describe is not None:
                        self.describe(work)
                    write_json(work / _RECORD, record)
        finally:
            self.ranks.barrier()

    def _remove_old(self, step: int, best: int | None) -> None:
        """Keep the newest up to `step`: later ones are damaged, and the run will write them again."""
        if not self.ranks.is_first:
            return
        steps = [shipped.step_of(path.name) or 0 for path in shipped.list_checkpoints(self.folder.parent)]
        for older in [other for other in steps if other <= step][: -self.keep]:
            if older != best:
                shutil.rmtree(self.path_of(older), ignore_errors=True)


def _write_shards(folder: Path, state: dict[str, Tensor], group: dist.ProcessGroup | None) -> None:
    """Write this rank's part; an error on one rank is raised on all."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.api import CheckpointException

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        checkpoint.save(state, storage_writer=writer, process_group=group)
    except CheckpointException as error:  # not a subclass of Exception
        with storage_errors(folder):
            raise next(iter(error.failures.values()))[0] from None
