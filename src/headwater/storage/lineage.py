"""The chain of folders that a folder was made from: `headwater lineage`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.errors import FolderError, HeadwaterError
from headwater.storage.provenance import MANIFEST, Input, Manifest, identity_of, read_manifest

Look = Callable[[str], tuple[Input, Manifest | None] | None]


def lineage(folder: Path, look: Look | None = None) -> dict[str, Any]:
    """The chain from `folder` back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, seed, inputs. "changed" marks an input that is no longer what the folder was made from, "remote" one
    behind a URL that was not looked at: `look` does that, which gives what lies at a URL now, None for nothing.
    """
    manifest = read_manifest(folder)
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, folder, look, set())


def lineage_at(url: str, look: Look) -> dict[str, Any]:
    """The same of a folder behind a URL."""
    found = look(url)
    if found is None:
        raise FolderError(f"{url} does not exist", expected="a folder", repair="Check the URL")
    return _lineage(found[0], None, look, set())


def _lineage(entry: Input, path: Path | None, look: Look | None, above: set[str]) -> dict[str, Any]:
    """The chain from one input on, which lies at `path`, or behind the URL in the entry."""
    told: dict[str, Any] = {**entry.to_dict(), "path": entry.path if path is None else str(path), "inputs": []}
    place = entry.path if path is None else str(path.resolve())
    if place in above:
        return told | {"state": "gone"}
    manifest: Manifest | None
    if path is None:
        if look is None:
            return told | {"state": "remote"}
        seen = look(entry.path)
        if seen is None:
            return told | {"state": "gone"}
        found, manifest = seen
        identity = found.identity
    elif not path.exists():
        return told | {"state": "gone"}
    else:
        try:
            manifest = read_manifest(path) if (path / MANIFEST).exists() else None
            identity = manifest.identity if manifest else identity_of(path)[1]
        except HeadwaterError:  # damaged, or altered against its own folder's manifest
            return told | {"state": "changed"}
    if manifest is None:
        return told | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    return told | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "seed": manifest.seed,
        "inputs": [
            _lineage(inner, _place_of(inner.path, path), look, above | {place}) for inner in manifest.inputs
        ],
    }


def _place_of(name: str, folder: Path | None) -> Path | None:
    """Where an input named by `name` in the manifest of `folder` lies; None behind a URL."""
    if "://" in name:
        return None
    return Path(os.path.normpath(folder / name if folder else name))
