"""Compile `headwater.native`: one portable extension, and one for each variant of the kernels; render `docs/reading`.

The rest of the package's settings are in pyproject.toml. An extension that the compiler cannot build is left out:
the package then computes in torch, or with a lower variant.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

FOLDER = "src/headwater/native"
PORTABLE = ("bpe_merges", "bpe_words", "cpu")
KERNELS = (
    "attention",
    "attention_tiles",
    "attention_whole",
    "elementwise",
    "loss",
    "pool",
    "product",
    "product_tiles",
)
KERNELS += ("transformer",)
# Multiplications and additions are joined only where the source says so.
OPTIONS = [
    "-std=gnu11",
    "-O3",
    "-g0",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-pthread",
    "-Wno-psabi",
]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
AVX512_BF16 = [*AVX512, "-mavx512vnni", "-mavx512bf16"]
VARIANTS = {
    "x86_64": {
        "generic": [],
        "avx2": AVX2,
        "avx2_vnni": [*AVX2, "-mavxvnni"],
        "avx512": AVX512,
        "avx512_bf16": AVX512_BF16,
        "amx": [*AVX512_BF16, "-mamx-tile", "-mamx-int8", "-mamx-bf16"],
    },
    "aarch64": {
        "generic": [],
        "neon": ["-march=armv8.2-a+dotprod"],
        "neon_bf16": ["-march=armv8.2-a+dotprod+bf16"],
    },
}


class Build(build_ext):
    """Give each extension its own folder for object files: variants compile the same sources."""

    def build_extension(self, ext: Extension) -> None:
        """Compile and link one extension."""
        shared, self.build_temp = self.build_temp, f"{self.build_temp}/{ext.name}"
        try:
            super().build_extension(ext)
        finally:
            self.build_temp = shared


class Pages(build_py):
    """Render the pages that `headwater serve` links to next to `serve/documentation.py`."""

    def run(self) -> None:
        """Copy modules and data, and render pages."""
        super().run()
        if not self.editable_mode:  # a checkout's pages are rendered when they are read
            folder = Path(self.build_lib, "headwater", "serve", "reading")
            folder.mkdir(parents=True, exist_ok=True)
            render = runpy.run_path("src/headwater/serve/documentation.py")["render"]
            for page in sorted(Path("docs", "reading").glob("*.md")):
                (folder / f"{page.name}.html").write_text(render(page), encoding="utf-8")


def extension(name: str, sources: tuple[str, ...], options: list[str]) -> Extension:
    """Return the extension `headwater.native._NAME`."""
    headers = (
        ("arrays", "calls")
        if sources == PORTABLE
        else ("calls", "dot", "elementwise", "pool", "simd", "tiles", "transformer")
    )
    return Extension(
        f"headwater.native._{name}",
        [f"{FOLDER}/{source}.c" for source in ("module", "calls", *sources)],
        depends=[f"{FOLDER}/{header}.h" for header in headers],
        define_macros=[("HEADWATER_INIT", f"PyInit__{name}"), ("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=options,
        py_limited_api=True,
        optional=True,
    )


def machine() -> str:
    """Return the architecture that is compiled for."""
    flags = os.environ.get("ARCHFLAGS", "")  # cross-compilation on macOS
    if "arm64" in flags or "x86_64" in flags:
        return "aarch64" if "arm64" in flags else "x86_64"
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


def extensions() -> list[Extension]:
    """Return all extensions for this platform. The kernels need GCC or Clang, so not on Windows."""
    if sys.platform == "win32":
        return [extension("portable", PORTABLE, [])]
    found = [extension("portable", PORTABLE, OPTIONS)]
    for name, options in VARIANTS.get(machine(), {"generic": []}).items():
        found.append(extension(name, KERNELS, [*OPTIONS, *options]))
    return found


def description() -> str:
    """Return README.md for a package index, which has neither its picture nor the files that it links to."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[.*\n\n.*\n\n", "", text, flags=re.M)  # a picture and its caption
    text = re.sub(r"^<!--.*-->\n", "", text, flags=re.M)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


options: dict[str, Any] = {"bdist_wheel": {"py_limited_api": "cp311"}}
setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": Build, "build_py": Pages},
    options=options,
    long_description=description(),
    long_description_content_type="text/markdown",
)
