"""The models and the server of `model_server`."""

from model_server import (
    base_folder,
    http,
    lstm_folder,
    masked_folder,
    server,
    speakers_folder,
    start_server,
    task_folders,
)

__all__ = [
    "base_folder",
    "http",
    "lstm_folder",
    "masked_folder",
    "server",
    "speakers_folder",
    "start_server",
    "task_folders",
]
