"""Read PyTorch's weight files (`pytorch_model.bin`, `ckpt.pt`) with `torch.load(weights_only=True)` alone.

That reads tensors, numbers, texts and containers of them, and runs no code of the file. A file that needs more is
refused with what it needs.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

from headwater.errors import FolderError
from headwater.shipped import refuse_pointer

# What torch's message says of a name that the file would import.
_GLOBAL = re.compile(r"(?:Unsupported global|GLOBAL|class) [`'\"]?([\w.]+)")


def read_pickled(path: Path) -> Any:
    """Return what `torch.save` wrote to a file; raise FolderError for a file that needs more than data."""
    import torch

    refuse_pointer(path)
    try:
        # Files of torch before 1.6 are not zip files, and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        named = _GLOBAL.search(str(error))
        needs = f"it needs {named[1]}" if named else "it is cut short, or not of torch.save"
        raise FolderError(
            f"{path} is more than weights: {needs}",
            expected="tensors, numbers and texts alone, which torch.load(weights_only=True) reads",
            repair="A file with other objects can run code when it is opened. Save the model as safetensors on a "
            "machine where the file is trusted",
        ) from None
    except Exception as error:  # whatever torch raises for a damaged file
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise FolderError(
            f"{path} is cut short, damaged or pickled by something else than torch.save: {reason}",
            repair="Copy it again, or save the model as safetensors on a machine where the file is trusted",
        ) from None
