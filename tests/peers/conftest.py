"""A server as the clients of other projects meet it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import Running, base_folder, http, start, start_server, task_folders

__all__ = ["base_folder", "http", "start_server", "task_folders"]


@pytest.fixture(scope="session")
def server(base_folder: Path, task_folders: dict[str, Path]) -> Iterator[Running]:
    """`base`, a classifier `classes` and a model `similarity`, for pages of https://page.example too."""
    named = {"base": base_folder, "classes": task_folders["classify"], "similarity": task_folders["similarity"]}
    models = (part for name, folder in named.items() for part in ("--model", f"{name}={folder}"))
    running = start(*models, "--allow-origin", "https://page.example")
    yield running
    assert running.stop() == 0
