"""The models and the server of `model_server`, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from model_server import (
    base_folder,
    http,
    lstm_folder,
    masked_folder,
    server,
    speakers_folder,
    start_server,
    task_folders,
    train_run,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = [
    "base_folder",
    "http",
    "lstm_folder",
    "masked_folder",
    "server",
    "speakers_folder",
    "start_server",
    "task_folders",
    "train_run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("needs Chromium: install Debian's package chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        yield playwright.chromium.launch(executable_path=chromium, args=arguments)
