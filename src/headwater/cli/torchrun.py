"""`python -m headwater.cli.torchrun`: torchrun, ended by the message and exit status of the rank that failed.

torchrun raises an exception of its own after a rank has failed, and when it is stopped: its traceback hides what
the rank said. Here the ranks hand their messages over, and the first is printed once.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_LAUNCHED = "HEADWATER_TORCHRUN"  # set for the ranks


def hand_over(message: str) -> bool:
    """Give the last message of this process to the launcher, if it is a rank of one; return whether it is."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or _LAUNCHED not in os.environ:
        return False
    said = {"message": message.strip(), "timestamp": int(time.time())}
    Path(file).write_text(json.dumps(said), encoding="utf-8")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run torchrun with its own arguments, by default those of the process, and return the exit status."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    for name in list(logging.root.manager.loggerDict):  # each has a level of its own
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ[_LAUNCHED] = "1"
    try:
        run.run(run.parse_args(arguments))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            print(f"Error: rank {rank}: {failure.message}.", file=sys.stderr)
            return 128 - int(failure.exitcode)
        if failure.error_file_data:  # else the rank has printed its traceback
            print(failure.message, file=sys.stderr)
        return int(failure.exitcode)
    except SignalException as stopped:
        name = signal.Signals(stopped.sigval).name
        print(f"Stopped by {name}, with all ranks. Run the same command again to resume.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
