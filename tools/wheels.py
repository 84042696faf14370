"""Check that a wheel contains the files of its package and nothing else: headwater's, or headwater-papers'.

python tools/wheels.py dist                list and check the wheels in a folder
python tools/wheels.py --compiled dist     require the compiled extensions too
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
# Package -> the folder of its pyproject.toml.
PROJECTS = {"headwater": ROOT, "headwater_papers": ROOT / "papers"}
COMPILED = "headwater/native/_"


def expected(name: str) -> set[str]:
    """Return every module of the package, its data files, and the pages that `setup.py` adds."""
    settings = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"][name]
    source = PROJECTS[name] / "src"
    found = (path for pattern in ("**/*.py", *patterns) for path in (source / name).glob(pattern))
    files = {
        path.relative_to(source).as_posix()
        for path in found
        if path.is_file() and path.parent.name != "__pycache__"
    }
    pages = (ROOT / "docs" / "reading").glob("*.md") if name == "headwater" else []
    return files | {f"headwater/serve/reading/{page.name}.html" for page in pages}


def faults(wheel: Path, *, compiled: bool) -> list[str]:
    """Return a sentence for each fault of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    extensions = {name for name in names if name.startswith(COMPILED) and not name.endswith((".py", ".pyi"))}
    about = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
    held = names - extensions - about
    package = wheel.name.split("-")[0]
    wanted = expected(package)
    compiled = compiled and package == "headwater"
    found = [f"{wheel.name} lacks {name}" for name in sorted(wanted - held)]
    found += [f"{wheel.name} holds {name}, which is not part of the package" for name in sorted(held - wanted)]
    for name in ("portable", *(() if "win" in wheel.name.rpartition("-")[2][:3] else ("generic",))):
        if compiled and not any(extension.startswith(f"{COMPILED}{name}.") for extension in extensions):
            found.append(f"{wheel.name} lacks the compiled extension {COMPILED}{name}")
    if not any(name.endswith("licenses/LICENSE") for name in about):
        found.append(f"{wheel.name} lacks the licence")
    return found


def main(arguments: list[str]) -> int:
    """List and check the wheels in the folders. Return the exit status."""
    compiled = "--compiled" in arguments
    folders = [Path(argument) for argument in arguments if argument != "--compiled"]
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("*.whl"))]
    if not wheels:
        print("no wheel there", file=sys.stderr)
        return 2
    wrong = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            print(wheel.name, *(f"  {i.file_size:>9,} {i.filename}" for i in archive.infolist()), sep="\n")
        wrong += faults(wheel, compiled=compiled)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
