"""check_kernels.c against the kernels' sources: under AddressSanitizer and UBSan, and for Arm under an
emulator."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headwater import native

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src/headwater/native"
SANITIZERS = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TILES_IN_C = f'-DTILE_OPERATIONS="{Path(__file__).with_name("tiles_in_c.h")}"'
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")

pytestmark = pytest.mark.slow


def settings() -> dict[str, Any]:
    """The sources and the compiler options that setup.py has for each variant."""
    found: dict[str, Any] = {}
    exec((ROOT / "setup.py").read_text(encoding="utf-8").split("class Build")[0], found)
    return found


def build(compiler: str, options: list[str], folder: Path) -> Path:
    program = folder / "check"
    command = [
        compiler,
        "-std=gnu11",
        "-O1",
        "-Wno-psabi",
        "-pthread",
        "-ffp-contract=off",
        f"-I{FOLDER}",
        *options,
    ]
    sources = [
        *(FOLDER / f"{name}.c" for name in ("calls", "cpu", *settings()["KERNELS"])),
        Path(__file__).with_name("check_kernels.c"),
    ]
    subprocess.run([*command, *sources, "-lm", "-o", program], check=True)
    return program


def run(compiler: str, options: list[str], folder: Path, emulator: list[str]) -> None:
    program = build(compiler, options, folder)
    checked = subprocess.run([*emulator, program], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "all agree\n"), checked.stdout + checked.stderr


@pytest.mark.parametrize("variant", native.available())
@pytest.mark.skipif(shutil.which("gcc") is None or not ON_X86, reason="gcc for x86-64 is not installed")
def test_no_kernel_touches_memory_that_is_not_its_own(variant: str, tmp_path: Path) -> None:
    run("gcc", [*SANITIZERS, *settings()["VARIANTS"]["x86_64"][variant]], tmp_path, [])


@pytest.mark.skipif(shutil.which("gcc") is None or not ON_X86, reason="gcc for x86-64 is not installed")
def test_tiles_in_plain_c_agree_on_any_machine(tmp_path: Path) -> None:
    run("gcc", [*SANITIZERS, TILES_IN_C], tmp_path, [])


@pytest.mark.skipif(
    shutil.which("gcc") is None or "amx" not in native.available(), reason="this processor has no AMX, or no gcc"
)
def test_tiles_in_plain_c_give_the_bits_of_the_processors(tmp_path: Path) -> None:
    digests = set()
    for options in ([TILES_IN_C], settings()["VARIANTS"]["x86_64"]["amx"]):
        program = build("gcc", options, tmp_path)
        digests.add(subprocess.run([program, "digest"], capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("variant", ["neon_bf16", "neon", "generic"])
@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-gcc") is None or shutil.which("qemu-aarch64") is None,
    reason="gcc-aarch64-linux-gnu and qemu-user are not installed",
)
def test_the_variants_for_arm_agree_under_an_emulator(variant: str, tmp_path: Path) -> None:
    options = ["-static", *settings()["VARIANTS"]["aarch64"][variant]]
    run("aarch64-linux-gnu-gcc", options, tmp_path, ["qemu-aarch64", "-cpu", "max"])
