"""Which variant is chosen, and what happens without one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import native
from headwater.errors import UsageError
from headwater.native import dispatch


@pytest.fixture
def asked_again() -> Iterator[None]:
    caches = (dispatch.available, dispatch.chosen)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def chosen_in_a_new_process(wish: str) -> tuple[str, str]:
    program = "from headwater import native; print(native.chosen())"
    environment = {**os.environ, dispatch.VARIABLE: wish}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return run.stdout.strip(), run.stderr


@pytest.mark.skipif(not native.available(), reason="the kernels are not built on Windows")
def test_the_variable_names_a_variant() -> None:
    assert native.chosen() in native.available()
    found, said = chosen_in_a_new_process(native.available()[-1])
    assert found == "generic"
    assert said == ""


@pytest.mark.skipif(not native.available(), reason="the kernels are not built on Windows")
def test_a_variant_that_cannot_run_is_refused() -> None:
    other = "avx2" if "neon" in native.available() else "neon"
    for name in ("avx1024", other):
        with pytest.raises(
            UsageError, match=f"HEADWATER_CPU={name} cannot run on this machine; expected .*generic"
        ):
            native.chosen(name)


# Linux refuses tiles to a process with an alternate stack for signals that is too small for them.
TILES_DENIED = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(8192)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 8192)), None) == 0

import torch
from headwater import native
from headwater.native.matrix import PackedMatrix

weight, x = torch.randn(70, 100), torch.randn(3, 100)
packed = PackedMatrix(native.kernels(), weight, None, "bf16")
torch.testing.assert_close(packed(x), x.bfloat16().float() @ weight.bfloat16().float().t())
print(native.chosen())
"""


@pytest.mark.skipif("amx" not in native.available(), reason="this processor has no AMX")
def test_where_the_system_denies_tiles_the_next_variant_computes() -> None:
    environment = {name: value for name, value in os.environ.items() if name != dispatch.VARIABLE}
    run = subprocess.run(
        [sys.executable, "-c", TILES_DENIED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.strip() == "avx512_bf16"


@pytest.mark.usefixtures("asked_again")
def test_a_package_without_kernels_warns_once_and_uses_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "extension", lambda name: None)
    monkeypatch.setattr(dispatch, "EXPECTED", True)
    with pytest.warns(RuntimeWarning, match=r"then run in the repository: pip install .*--no-deps \.$") as warned:
        assert [dispatch.chosen() for _ in range(2)] == [None, None]
    assert len(warned) == 1
    dispatch.chosen.cache_clear()
    for name in ("nonsense", "generic"):
        monkeypatch.setenv(dispatch.VARIABLE, name)
        with pytest.raises(UsageError, match=f"HEADWATER_CPU={name} cannot run .*no kernels were built"):
            dispatch.chosen()


def test_a_library_for_another_machine_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "__file__", str(tmp_path / "dispatch.py"))
    (tmp_path / f"_generic{dispatch.EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF for something else")
    assert dispatch.extension.__wrapped__("generic") is None


# Daemon threads that are in the kernels at the end, by calls in which torch itself does not leave the interpreter:
# a thread that is inside torch at the end aborts the process, with or without these kernels.
COMPUTING_AT_THE_END = """
import sys
import threading

import numpy as np
import torch

from headwater import native
from headwater.native.forward import Affine, Forward, Shape, TransformerWeights

torch.set_num_threads(2)
kernels, width = native.kernels(sys.argv[1]), 256
shape = Shape(2, width, 4, 512, 500, False, 1e-5)
sizes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
affine = [Affine(torch.ones(out, into), torch.ones(out)) for out, into in sizes]
norm = Affine(torch.ones(width), torch.ones(width))
layers = [[*affine, norm, norm]] * 2
table = torch.ones(500, width)
weights = TransformerWeights(kernels, shape, "fp32", layers, table, torch.ones(512, width), None, table)
caches = [[torch.zeros(shape.pages * shape.page_elements) for _ in range(2)] for _ in range(2)]
forward = Forward(weights, *caches)
rows = np.zeros(400, np.int32), np.zeros(400, np.int32), np.arange(400, dtype=np.int32)
tables = np.arange(shape.pages, dtype=np.int32)[None].copy()
logits = torch.empty(400, weights.output.structure.outputs)
scores = torch.zeros(400, 400)
begun = [threading.Event(), threading.Event()]


def run():
    while True:
        forward(*rows, tables, 400, logits)
        begun[0].set()


def spread():
    while True:
        kernels.softmax_(scores, 1.0)
        begun[1].set()


for work in (run, spread):
    threading.Thread(target=work, daemon=True).start()
for event in begun:
    event.wait()
"""


@pytest.mark.skipif(not native.available(), reason="the kernels are not built on Windows")
def test_no_kernel_thread_outlives_the_interpreter() -> None:
    for variant in {native.available()[0], native.available()[-1]}:
        run = subprocess.run(
            [sys.executable, "-c", COMPUTING_AT_THE_END, variant],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert (run.returncode, run.stderr) == (0, "")


CALLED_AFTER_THE_END = """
import atexit
atexit.register(lambda: matrix(torch.ones(1, 64)))  # runs after the library has closed

import torch

from headwater import native
from headwater.native.matrix import PackedMatrix

matrix = PackedMatrix(native.kernels(), torch.ones(64, 64), None, "fp32")
"""


@pytest.mark.skipif(not native.available(), reason="the kernels are not built on Windows")
def test_a_call_after_the_end_is_an_error_and_no_crash() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CALLED_AFTER_THE_END], capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0
    assert "RuntimeError: the interpreter is shutting down" in run.stderr
