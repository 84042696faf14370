"""Arrays written as `.npy` so that a full disk is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """What `numpy.save` writes, byte for byte; raises OSError where not all of it could be.

    numpy hands the content to the C library's buffer and never asks whether its last bytes reached the disk: a
    full one leaves a short file behind and no error.
    """
    array = np.ascontiguousarray(array)
    with path.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(array))
        handle.write(array.tobytes())
