"""Gather the text that a shipped model learns, from a list with the source and licence of every part.

    python tools/gather.py recipes/texts/english.toml --data DIR --packages DIR --repositories DIR --out text

`--data` has the folders that the list names; `--packages` has Debian packages (`apt-get download NAME`);
`--repositories` has clones of git repositories (`git clone --bare https://github.com/OWNER/NAME OWNER/NAME`). Each
part becomes a folder OUT/GROUP/PART of plain files. If a part is missing, or does not have the `sha256` of the
list, the error names it. The hash of every part is printed.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import html
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwater.config import Config, read_toml
from headwater.errors import HeadwaterError

SEPARATOR = "<|endoftext|>"  # between the documents of a part that is one file


class Part(Config):
    """One source of text: what it is, where its files are, and its licence.

    Its files are in a `folder` of the data, in a Debian `package`, or in a `repository` at a `commit`. `field` is
    the field of CSV or JSON rows that has the text, and `between` is written between two rows of a file. Each
    match of a pattern in `remove` is left out: front matter, tags, code, addresses. In a text list, `remove` may
    also be the name of a list in the table `patterns`.
    """

    name: str
    group: str
    title: str
    licence: str
    origin: str
    pattern: str
    folder: str | None = None
    package: str | None = None
    repository: str | None = None
    commit: str | None = None
    names: str | None = None
    field: str | None = None
    between: str = SEPARATOR
    leave_out: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    sha256: str | None = None


def main() -> int:
    """Gather the parts of a list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--repositories", type=Path, default=Path("repositories"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        for part in read_list(given.list):
            found = gather(part, given.data, given.packages, given.out, given.repositories)
            size = f"{found['files']:,} files, {found['bytes'] / 1e6:.1f} MB"
            print(f'{part.name}: {size}, sha256 = "{found["sha256"]}"')
    except HeadwaterError as error:
        raise SystemExit(str(error)) from None
    return 0


def read_language(path: Path) -> str:
    """Return the code of the language of a text list, by default English's."""
    return str(read_toml(path).get("language", "en"))


def read_list(path: Path) -> list[Part]:
    """Return the parts of a text list. Raise HeadwaterError for a file that is not such a list."""
    listed = read_toml(path)
    patterns, parts = listed.get("patterns", {}), listed.get("part")
    if not isinstance(parts, list) or not parts:
        raise HeadwaterError(f"{path} is not a text list: it has no [[part]].")
    for part in parts:
        if isinstance(part.get("remove"), str):
            part["remove"] = patterns.get(part["remove"], part["remove"])
    return [Part.build(part) for part in parts]


def gather(
    part: Part, data: Path, packages: Path, out: Path, repositories: Path = Path("repositories")
) -> dict[str, Any]:
    """Write the files of a part to OUT/GROUP/NAME. Return their number, bytes and hash.

    Raises HeadwaterError if the part is missing or is not the text of the list.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if part.folder:
            root = data / part.folder
        elif part.repository:
            root = check_out(part, repositories, Path(scratch))
        else:
            root = unpack(part, packages, Path(scratch))
        kept = {
            name: text
            for name, text in documents(part, root)
            if not any(fnmatch.fnmatch(name, pattern) for pattern in part.leave_out)
        }
    if not kept:
        place = root if part.folder else part.package or part.repository
        raise HeadwaterError(
            f'{part.name} has no file "{part.pattern}" in {place}. '
            f"Bring {part.origin} there, or take the part out of the list."
        )
    digest = hashlib.sha256()
    for name, text in sorted(kept.items()):
        digest.update(f"{name}\0{hashlib.sha256(text).hexdigest()}\n".encode())
    if part.sha256 not in (None, digest.hexdigest()):
        raise HeadwaterError(
            f"{part.name} is another text: its hash is {digest.hexdigest()}, the list states {part.sha256}. "
            f"Bring the text that the list means, or state the new hash."
        )
    folder = out / part.group / part.name
    written = folder.with_name(f".{part.name}.partial")
    shutil.rmtree(written, ignore_errors=True)
    for name, text in kept.items():
        path = written / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier list
    written.rename(folder)
    return {"files": len(kept), "bytes": sum(map(len, kept.values())), "sha256": digest.hexdigest()}


def documents(part: Part, root: Path) -> Iterator[tuple[str, bytes]]:
    """Return the files of a part, or the documents of its only file, by name."""
    if part.names is None:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not path.is_symlink() and fnmatch.fnmatch(name, part.pattern):
                yield readable(part, name, path.read_bytes())
        return
    names = [Path(line).name for line in (root / part.names).read_text(encoding="utf-8").split()]
    texts = (root / part.pattern).read_text(encoding="utf-8").split(SEPARATOR)
    yield from zip(names, (text.strip("\n").encode() + b"\n" for text in texts if text.strip()), strict=True)


def readable(part: Part, name: str, data: bytes) -> tuple[str, bytes]:
    """Return the name and the bytes of a file; with `field` or `remove`, of a text file made from it.

    Character references in XML become characters.
    """
    if part.field is None and not part.remove:
        return name, data
    text = data.decode("utf-8", "replace")
    if part.field is not None:
        found = list(rows(name, text))
        if any(not isinstance(row.get(part.field), str) for row in found):
            raise HeadwaterError(
                f'A row of {name} in {part.name} has no text "{part.field}". Correct `field` in the list.'
            )
        text = part.between.join(filter(None, (row[part.field].strip() for row in found)))
    if part.remove:
        text = re.sub("|".join(part.remove), "", text, flags=re.DOTALL | re.MULTILINE)
    if name.endswith("xml"):
        text = re.sub(r"\n{3,}", "\n\n", html.unescape(text))
    return f"{name}.txt", text.encode()


def rows(name: str, text: str) -> Iterable[dict[str, str]]:
    """Return the rows of a CSV file, a JSON list or JSON lines."""
    if name.endswith(".csv"):
        return csv.DictReader(io.StringIO(text))
    text = text.strip()
    # Not splitlines: JSON may hold U+2028 inside a string.
    found: list[dict[str, str]] = (
        json.loads(text) if text.startswith("[") else list(map(json.loads, text.split("\n")))
    )
    return found


def check_out(part: Part, repositories: Path, scratch: Path) -> Path:
    """Write the files of a part from its repository, and return the folder that has them."""
    clone = repositories / str(part.repository)
    missing = HeadwaterError(
        f"{repositories} has no clone of {part.repository} with the commit {part.commit} for {part.name}. "
        f"Run: git clone --bare https://github.com/{part.repository} {clone}"
    )
    if not clone.exists():
        raise missing
    git = ["git", "-C", str(clone)]
    listed = subprocess.run([*git, "ls-tree", "-rz", "--name-only", str(part.commit)], capture_output=True)
    if listed.returncode:
        raise missing
    names = [name for name in listed.stdout.decode().split("\0") if fnmatch.fnmatch(name, part.pattern)]
    if names:
        archive = subprocess.run(
            [*git, "archive", str(part.commit), "--", *(f":(literal){name}" for name in names)],
            check=True,
            stdout=subprocess.PIPE,
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            # As an attribute: Python before 3.11.4 has no filters, nor the argument for one.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(scratch)
    return scratch


def unpack(part: Part, packages: Path, scratch: Path) -> Path:
    """Unpack a Debian package and return the folder of its files."""
    found = sorted(packages.glob(f"{part.package}_*.deb"))
    if not found:
        raise HeadwaterError(
            f"{packages} has no package {part.package} for {part.name}. Run: apt-get download {part.package}"
        )
    subprocess.run(["dpkg-deb", "-x", str(found[-1]), str(scratch)], check=True)
    return scratch


if __name__ == "__main__":
    sys.exit(main())
