"""SIGKILL at random moments in every command that writes: nothing is lost, and the end has the same bytes.

The moments come from a printed seed (HEADWATER_FAULTS_SEED). A trial kills a command several times in one folder
and then lets it end; all that is left must be what an undisturbed run leaves, and nothing beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# How many kills of each command; a trial has up to four of them in a row.
KILLS = {
    "links": 14,
    "fetch": 20,
    "build": 16,
    "build-pages": 16,
    "labels": 14,
    "tokenizer": 14,
    "pack": 14,
    "pretrain": 28,
    "finetune": 16,
    "predict": 14,
    "evaluate": 16,
    "reproduce": 14,
    "convert": 14,
    "gguf": 14,
    "report": 14,
}


def kill(campaign: Any, name: str, wanted: int) -> int:
    """Trials until so many kills were made; returns how many."""
    seconds = campaign.reference(name)[1]
    kills = missed = 0
    while kills < wanted and missed < 4 * wanted:
        folder = campaign.trial(name)
        for again in range(campaign.random.randint(1, 4)):
            moment = campaign.random.uniform(0, seconds)
            whole = campaign.random.random() < 0.5  # else its workers live on for a moment
            ended = campaign.run(name, folder, kill_after=moment, kill_group=whole)
            assert ended.was_killed or ended.status == 0, ended.output
            kills += ended.was_killed
            missed += not ended.was_killed
            if not ended.was_killed and not again:  # a busier machine than now is what the reference was taken on
                seconds = min(seconds, ended.seconds)
        campaign.finish(name, folder)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("name", list(KILLS))
def test_killed_commands_end_with_the_same_bytes(
    campaign: Any, counted: Callable[[str, int], None], name: str
) -> None:
    kills = kill(campaign, name, KILLS[name])
    assert kills >= KILLS[name]
    counted("kills", kills)
