"""Trace the folders that a folder was made from: `headwater lineage`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.errors import FolderError, HeadwaterError
from headwater.storage.provenance import MANIFEST, Input, Manifest, identity_of, read_manifest

Resolve = Callable[[str], tuple[Input, Manifest | None] | None]


def lineage(folder: Path, resolve_url: Resolve | None = None) -> dict[str, Any]:
    """Return the chain from `folder` back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, seed, inputs. "changed" marks an input that is no longer what the folder was made from, "remote" a URL
    that was not checked. `resolve_url` checks URLs: it returns what is at a URL now, or None.
    """
    manifest = read_manifest(folder)
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, folder, resolve_url, set())


def lineage_at(url: str, resolve_url: Resolve) -> dict[str, Any]:
    """Return the same chain for a folder at a URL."""
    found = resolve_url(url)
    if found is None:
        raise FolderError(f"{url} does not exist", expected="a folder", repair="Check the URL")
    return _lineage(found[0], None, resolve_url, set())


def _lineage(entry: Input, path: Path | None, resolve_url: Resolve | None, above: set[str]) -> dict[str, Any]:
    """Return the chain of one input, which is at `path`, or at the URL in the entry if that is None."""
    node: dict[str, Any] = {**entry.to_dict(), "path": entry.path if path is None else str(path), "inputs": []}
    place = entry.path if path is None else str(path.resolve())
    if place in above:
        return node | {"state": "gone"}
    manifest: Manifest | None
    if path is None:
        if resolve_url is None:
            return node | {"state": "remote"}
        seen = resolve_url(entry.path)
        if seen is None:
            return node | {"state": "gone"}
        found, manifest = seen
        identity = found.identity
    elif not path.exists():
        return node | {"state": "gone"}
    else:
        try:
            manifest = read_manifest(path) if (path / MANIFEST).exists() else None
            identity = manifest.identity if manifest else identity_of(path)[1]
        except HeadwaterError:  # damaged, or altered against its own folder's manifest
            return node | {"state": "changed"}
    if manifest is None:
        return node | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    return node | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "seed": manifest.seed,
        "inputs": [
            _lineage(inner, _place_of(inner.path, path), resolve_url, above | {place}) for inner in manifest.inputs
        ],
    }


def _place_of(name: str, folder: Path | None) -> Path | None:
    """Return the path of an input that the manifest of `folder` calls `name`; None for a URL."""
    if "://" in name:
        return None
    return Path(os.path.normpath(folder / name if folder else name))
