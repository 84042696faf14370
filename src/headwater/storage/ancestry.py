"""Trace the folders that a folder was made from: `headwater lineage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.storage.provenance import Input, Manifest, has_manifest, identity_of, read_manifest
from headwater.storage.remote import is_url


def lineage(folder: Path, *, known: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the chain from a folder back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, commands (more than one for a run whose length was changed), seed, inputs. "changed" marks an input
    that is no longer what the folder was made from, "remote" a URL, which is not checked. known: the identities of
    sources that were hashed already, which is filled; each source is hashed once.
    """
    manifest = read_manifest(folder)
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, folder, set(), {} if known is None else known)


def _lineage(entry: Input, path: Path, above: set[Path], known: dict[str, str]) -> dict[str, Any]:
    """Return the chain of one input, which is at `path`."""
    node: dict[str, Any] = {**entry.to_dict(), "path": str(path), "inputs": []}
    if is_url(entry.path):
        return node | {"path": entry.path, "state": "remote"}
    if path.resolve() in above or not path.exists():
        return node | {"state": "gone"}
    try:
        manifest = read_manifest(path) if has_manifest(path) else None
        key = f"{path.resolve()} {entry.suffixes}"
        if manifest is None and key not in known:
            known[key] = identity_of(path, entry.suffixes)[1]
        identity = known[key] if manifest is None else manifest.identity
    except HeadwaterError:  # damaged, or altered against its own folder's manifest
        return node | {"state": "changed"}
    if manifest is None:
        return node | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    above = above | {path.resolve()}
    return node | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "commands": [*_earlier_commands(manifest), manifest.command],
        "seed": manifest.seed,
        "inputs": [_lineage(inner, inner.path_from(path), above, known) for inner in manifest.inputs],
    }


def _earlier_commands(manifest: Manifest) -> list[str]:
    """Return the commands before the last one that changed the length of a run, each with its end."""
    changes = [change for change in manifest.config.get("changes", []) if "command" in change]
    return [f"{change['command']}  # until update {change['at']:,}" for change in changes]
