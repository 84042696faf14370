"""JSON objects that notice when they were cut short or altered: they contain their own checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.storage import write_json


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum."""
    write_json(path, {**content, "checksum": _checksum(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote; raises FolderError when it was cut short or altered."""
    content = read_json(path)
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if checksum is None or checksum != _checksum(content):
        raise FolderError(f"{path} was cut short or altered", repair="Remove its folder and run the command again")
    return dict(content)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
