"""A model of random weights with its tokenizer, and the folders that Headwater's own tasks read."""

from __future__ import annotations

import pytest
from plain_model import Plain, World, make_world

from headwater.evaluation import all_tasks, select


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def own_task(world: World) -> None:
    """Let tests name the protocols of a user's task file, as those of an installed distribution."""
    if "continuation.four.mean" not in all_tasks():
        all_tasks().update({task.protocol: task for task in select([str(world.root / "continuation.toml")])})


@pytest.fixture(scope="module")
def plain(world: World) -> Plain:
    return Plain(world.model)
