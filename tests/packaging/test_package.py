"""What is declared is what is there: files, imports, licences; and it installs as a stranger would install it."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import floors
import pytest
import wheels
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
# Modules of the standard library that Windows does not have.
POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in PACKAGE.rglob("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("name", list(wheels.PROJECTS))
def test_a_package_declares_every_file_next_to_its_code(name: str) -> None:
    declared = wheels.expected(name)
    source = wheels.PROJECTS[name] / "src"
    sources = {path.relative_to(source).as_posix() for path in source.glob("headwater/native/*.[ch]")}
    built = {".pyc", ".so", ".pyd"}
    files = {path for path in (source / name).rglob("*") if path.is_file() and path.suffix not in built}
    assert {path.relative_to(source).as_posix() for path in files} - declared <= sources
    assert f"{name}/py.typed" in declared


def test_every_import_is_of_a_declared_package() -> None:
    project, build = settings()["project"], settings()["build-system"]
    texts = [
        *build["requires"],
        *project["dependencies"],
        *(t for extra in project["optional-dependencies"].values() for t in extra),
    ]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    owners = importlib.metadata.packages_distributions()
    wrong = set()
    for path, tree in trees():
        for name in imports(ast.walk(tree)):
            if name in sys.stdlib_module_names | {"headwater", "headwater_papers"}:
                continue
            given_by = {canonicalize_name(owner) for owner in owners.get(name, [name])}
            if not given_by & declared:
                wrong.add(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == set()


# The first versions that repair a known weakness: advisories of osv.dev and GitHub, looked up on 22 November 2026
# for packages that read what strangers send: aiohttp, starlette, ray, pyarrow, jinja2, protego. The other floors
# were not looked up. Continuous integration asks pip-audit about every dependency.
REPAIRED = {
    "protego": "0.7",  # one robots.txt took seconds of backtracking
    # CVE-2025-62727: quadratic time for a Range header; CVE-2026-48710, PYSEC-2026-248, -249: request.url, forms
    "starlette": "1.3.1",
    # CVE-2025-69223 and others: answers that exhaust memory; PYSEC-2026-2102: control characters in headers;
    # PYSEC-2026-4370: host-only cookies
    "aiohttp": "3.14.4",
    "jinja2": "3.1.6",  # CVE-2025-27516
    "pyarrow": "14.0.1",  # CVE-2023-47248: a file runs code
    # CVE-2025-62593, CVE-2026-27482, CVE-2026-32981: what a page in a browser may ask of the dashboard; the
    # security update 2.56.0
    "ray": "2.56",
}


def test_declared_floors_are_above_known_advisories() -> None:
    declared = dict(line.split("==") for line in floors.floors())
    for name, repaired in REPAIRED.items():
        assert Version(declared[name]) >= Version(repaired), name


def test_no_module_needs_what_windows_does_not_have() -> None:
    wrong = [path.name for path, tree in trees() if POSIX & set(imports(iter(tree.body)))]
    assert wrong == []


def installed_with(extra: str) -> set[str]:
    """The installed packages that an extra of Headwater needs, without NVIDIA's libraries."""
    seen, waiting = set(), [f"headwater[{extra}]"]
    while waiting:
        requirement = Requirement(waiting.pop())
        for part in (requirement.name, *(f"{requirement.name}[{one}]" for one in requirement.extras)):
            if part in seen or requirement.name.startswith(("nvidia-", "cuda-")):
                continue
            try:
                needed = map(Requirement, importlib.metadata.requires(requirement.name) or [])
            except importlib.metadata.PackageNotFoundError:
                break
            seen.add(part)
            asked = {"extra": part.partition("[")[2].rstrip("]")}
            waiting += [str(one) for one in needed if one.marker is None or one.marker.evaluate(asked)]
    return {canonicalize_name(name) for name in seen if "[" not in name} - {"headwater"}


def test_a_licence_with_duties_is_named_on_the_page() -> None:
    program = [sys.executable, "-m", "piplicenses", "--from=mixed", "--with-system", "--format=json"]
    stated = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    licences = {canonicalize_name(one["Name"]): one["License"] for one in stated}
    named = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    duties = re.compile(r"\b(?:[AL]?GPL|MPL|EPL|EUPL|CDDL|OSL|SSPL|GNU|Mozilla|Eclipse|copyleft)", re.IGNORECASE)
    names = installed_with("all")
    assert {"torch", "tqdm", "starlette"} <= names
    for name in sorted(names):
        assert licences[name] != "UNKNOWN", name
        assert not duties.search(licences[name]) or f"- {name}:" in named, f"{name} is under {licences[name]}"


@pytest.mark.slow
def test_the_wheel_of_the_papers_has_its_files_and_command(tmp_path: Path) -> None:
    source = tmp_path / "papers"
    shutil.copytree(ROOT / "papers", source, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "build"))
    build = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, source]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheels.faults(wheel, compiled=False) == []
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert b"reproduce = headwater_papers.command:reproduce" in archive.read(entries)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [None, "false"], ids=["with a compiler", "without one"])
def test_the_wheel_is_complete_and_works_when_installed(tmp_path: Path, compiler: str | None) -> None:
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns(".*", "*.so", "*.egg-info", "__pycache__", "build", "tests")
    shutil.copytree(ROOT, source, ignore=left_out)
    environment = {**os.environ, **({"CC": compiler} if compiler else {})}
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        tmp_path,
        source,
    ]
    subprocess.run(build, check=True, env=environment, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheels.faults(wheel, compiled=compiler is None and shutil.which("cc") is not None) == []

    # Installed alone, over the packages that are here already: from anywhere, not next to the source.
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    program = (
        "import headwater, headwater.native as native\n"
        "tokenizer = headwater.Tokenizer.train(['a b a b'], vocab_size=258)\n"
        "from headwater.config import read_recipe\n"
        "assert read_recipe('gpt2-nano')['preset'] == 'gpt2-nano'\n"
        "print(headwater.__file__, tokenizer.decode(tokenizer.encode('a_b')), native.available() != ())\n"
    )
    environment["PYTHONPATH"] = str(site)
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    where, text, found = (
        run.stdout.strip().split(" ", 1)[0],
        run.stdout.split(" ", 1)[1][:3],
        run.stdout.split()[-1],
    )
    assert Path(where).is_relative_to(site)
    assert text == "a_b"
    assert found == str(compiler is None)


@pytest.mark.slow
def test_a_users_type_checker_sees_the_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import headwater as hw\nreveal_type(hw.Tokenizer.load('gpt2').encode('a'))\nhw.load(3)\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports", "silent", "--cache-dir", tmp_path / "cache", program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 'Revealed type is "list[int]"' in checked.stdout.replace("builtins.", "")
    assert 'Argument 1 to "load" has incompatible type "int"' in checked.stdout
