"""A model of random weights with its tokenizer, and the folders that Headwater's own tasks read."""

from __future__ import annotations

import pytest
from plain_model import Plain, World, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def plain(world: World) -> Plain:
    return Plain(world.model)
