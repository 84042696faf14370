"""What every test shares: the folder of real data, and a network that is closed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets; the test is skipped, saying so, where there is none."""
    named = os.environ.get("HEADWATER_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("needs real data: set HEADWATER_DATA to its folder")
    return Path(named)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections beyond this machine are refused: no test may need the network."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        local = self.family == getattr(socket, "AF_UNIX", None) or (
            isinstance(address, tuple) and address[0] in {"127.0.0.1", "::1", "localhost"}
        )
        if not local:
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)
