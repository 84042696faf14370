"""Every seed of the fuzzer, and every finding that it made and that was mended, ends well."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

for package in ("fastwarc", "resiliparse", "zstandard", "fastapi"):
    pytest.importorskip(package)

HERE = Path(__file__).parent
SEEDS = sorted(path for path in (HERE / "seeds").glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    specification = importlib.util.spec_from_file_location("fuzz_targets", HERE / "targets.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz_targets"] = module
    specification.loader.exec_module(module)
    return module


def test_every_target_has_seeds(targets: ModuleType) -> None:
    assert {path.parent.name for path in SEEDS} == set(targets.TARGETS)


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("target", sorted({path.parent.name for path in SEEDS}))
def test_seeds_end_well(targets: ModuleType, target: str) -> None:
    for seed in (path for path in SEEDS if path.parent.name == target):
        targets.TARGETS[target](seed.read_bytes())
