"""Run a Headwater command that sends itself a signal: SIGNAL RANK STEP MARKER COMMAND ….

The process of rank RANK gets the signal once, after update STEP, whose line is in the journal, and before the next
update. An observer outside the process could be late. The file MARKER records that the signal was sent, because
torchrun starts the same command again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from headwater.cli.main import main
from headwater.training import Trainer

NUMBER, RANK, STEP = map(int, sys.argv[1:4])
MARKER = Path(sys.argv[4])
update = Trainer.update


def end_or_update(trainer: Trainer, *arguments: Any, **options: Any) -> Any:
    """Send the signal if it is due, then update."""
    if trainer.step == STEP and trainer.ranks.rank == RANK and not MARKER.exists():
        MARKER.touch()
        os.kill(os.getpid(), NUMBER)
    return update(trainer, *arguments, **options)


if __name__ == "__main__":
    Trainer.update = end_or_update  # type: ignore[method-assign]
    sys.exit(main(sys.argv[5:]))
