from .console import AsJson, Device, Download, Limit, Out, Seed, Settings, emit, local_model, terminal_progress
from .keys import keys_option
from .process import prepare

__all__ = [
    "AsJson",
    "Device",
    "Download",
    "Limit",
    "Out",
    "Seed",
    "Settings",
    "emit",
    "keys_option",
    "local_model",
    "prepare",
    "terminal_progress",
]
