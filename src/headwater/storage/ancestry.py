"""Trace the folders that a folder was made from: `headwater lineage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.errors import DataError, HeadwaterError
from headwater.reading import is_remote
from headwater.storage.provenance import Input, Manifest, has_manifest, identity_of, read_manifest
from headwater.storage.remote import list_source


def lineage(folder: str | Path, *, remote: bool = False, known: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the chain from a folder or URL back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, commands (more than one for a run whose length was changed), seed, inputs. "changed" marks an input
    that is no longer what the folder was made from, "remote" a URL that was not checked. `remote` checks the
    inputs at URLs; those of a URL are always checked. known: the identities of sources that were hashed already,
    which is filled; each source is hashed once.
    """
    known = {} if known is None else known
    if is_remote(folder):
        return _lineage(list_source(folder).input, None, True, set(), known)
    manifest = read_manifest(Path(folder))
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, Path(folder), remote, set(), known)


def _lineage(
    entry: Input, path: Path | None, remote: bool, above: set[str], known: dict[str, str]
) -> dict[str, Any]:
    """Return the chain of one input, which is at `path`, or at the URL in the entry if that is None."""
    node: dict[str, Any] = {**entry.to_dict(), "path": entry.path if path is None else str(path), "inputs": []}
    name = entry.path if path is None else str(path.resolve())
    if name in above or (path is not None and not path.exists()):
        return node | {"state": "gone"}
    if path is None and not remote:
        return node | {"state": "remote"}
    if path is None:
        try:
            listing = list_source(entry.path)
        except DataError:
            return node | {"state": "gone"}
        manifest, identity = listing.manifest, listing.input.identity
    else:
        try:
            manifest = read_manifest(path) if has_manifest(path) else None
            key = f"{name} {entry.suffixes}"
            if manifest is None and key not in known:
                known[key] = identity_of(path, entry.suffixes)[1]
            identity = known[key] if manifest is None else manifest.identity
        except HeadwaterError:  # damaged, or altered against its own folder's manifest
            return node | {"state": "changed"}
    if manifest is None:
        return node | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    above = above | {name}
    return node | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "commands": [*_earlier_commands(manifest), manifest.command],
        "seed": manifest.seed,
        "inputs": [_lineage(inner, _path(inner, path), remote, above, known) for inner in manifest.inputs],
    }


def _earlier_commands(manifest: Manifest) -> list[str]:
    """Return the commands before the last one that changed the length of a run, each with its end."""
    changes = [change for change in manifest.config.get("changes", []) if "command" in change]
    return [f"{change['command']}  # until update {change['at']:,}" for change in changes]


def _path(entry: Input, folder: Path | None) -> Path | None:
    """Return the path of an input of `folder`; None for a URL."""
    return None if is_remote(entry.path) else entry.path_from(folder or Path())
