"""Models by their name on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.errors import ResourceError, require_extra

_IN_CACHE = re.compile("/models--([^/]+?)--([^/]+)/snapshots/[^/]+$")  # the layout of huggingface_hub


def is_hub_name(name: str) -> bool:
    """Return whether a name that is not a path here has the form of a hub name: OWNER/NAME."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


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
    except HFValidationError:
        raise ResourceError(
            f"{name} is neither a folder nor a valid hub name",
            repair="Check the path",
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        if download:
            reason = str(error).strip().partition("\n")[0]
            raise ResourceError(f"{name} could not be fetched from the hub: {reason}") from error
        raise ResourceError(
            f"{name} is neither a folder nor a hub model in the local cache",
            repair=f"Check the path, or fetch it: --download, in Python download=True, or hf download {name}",
        ) from None
