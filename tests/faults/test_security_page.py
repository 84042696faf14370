"""Each defence in SECURITY.md names a test that exists, and one that always runs."""

from __future__ import annotations

import re
from pathlib import Path

ROWS = [
    line
    for line in (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| threat", "|---"))
]


def test_every_defence_names_a_test_that_always_runs(is_slow: dict[str, bool]) -> None:
    slow = {name.partition("::")[2]: found for name, found in is_slow.items()}
    assert len(ROWS) > 25
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1])
        assert not set(named) - set(slow), row
        assert not all(slow[name] for name in named), row
