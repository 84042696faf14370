"""SIGKILL at random moments in every command that writes: nothing is lost, and the end has the same bytes.

The moments come from a printed seed (HEADWATER_FAULTS_SEED). A trial kills a command several times in one folder
and then lets it end; it must leave what an undisturbed run leaves, and nothing else.
HEADWATER_FAULTS_KILLS asks for at least so many kills of all commands of KILLS together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# How many kills of each command; a trial has up to four of them in a row.
KILLS = {
    "links": 14,
    "fetch": 20,
    "build": 16,
    "build-pages": 16,
    "tokenizer": 14,
    "pack": 14,
    "pretrain": 28,
    "branch": 14,
    "lengthen": 16,
    "finetune": 16,
    "predict": 14,
    "evaluate": 16,
    "reproduce": 14,
    "convert": 14,
    "gguf": 14,
    "report": 14,
}
WRITES = {"--out", "destination"}
WANTED = int(os.environ.get("HEADWATER_FAULTS_KILLS", str(sum(KILLS.values()))))
Counted = Callable[[str, int], None]


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
            assert ended.was_killed or ended.is_done(name), ended.output
            kills += ended.was_killed
            missed += not ended.was_killed
            if not ended.was_killed and not again:  # a busier machine than now is what the reference was taken on
                seconds = min(seconds, ended.seconds)
        campaign.finish(name, folder)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("name", list(KILLS))
def test_killed_commands_end_with_the_same_bytes(campaign: Any, counted: Counted, name: str) -> None:
    wanted = -(-KILLS[name] * WANTED // sum(KILLS.values()))  # rounded up
    kills = kill(campaign, name, wanted)
    assert kills >= wanted
    counted("kills", kills)


@pytest.mark.slow
def test_a_quickstart_continues_after_every_kill(campaign: Any, counted: Counted) -> None:
    """It measures its size each time, so the test compares no bytes: complete files stay as they are."""
    folder = campaign.trial("quickstart")
    arguments = ["quickstart", "--minutes", "0.01", "../world/texts", "--out", "out"]
    kills = 0
    kept: dict[Path, bytes] = {}
    for _ in range(40):
        ended = campaign.warm.wait(
            campaign.warm.start(arguments, folder, kill_after=campaign.random.uniform(0.2, 6.0), kill_group=True)
        )
        for path, content in kept.items():
            assert path.read_bytes() == content, f"{path} was complete before a kill"
        kept |= {path: path.read_bytes() for path in folder.glob("out/*/headwater.json") if is_complete(path)}
        if ended.status == 0:
            break
        assert ended.was_killed, ended.output
        kills += 1
    ended = campaign.warm.wait(campaign.warm.start(arguments, folder))
    assert ended.status == 0, ended.output
    assert "<html" in (folder / "out" / "report.html").read_text()
    left = [path for path in folder.rglob(".*") if path.name not in {".lock", ".quickstart.json"}]
    assert not left, left
    counted("kills", kills)


def is_complete(manifest: Path) -> bool:
    return b'"complete": true' in manifest.read_bytes()


@pytest.mark.slow
def test_a_full_disk_loses_nothing_of_a_folder(campaign: Any, counted: Counted) -> None:
    name = "lengthen"
    largest = max(map(len, campaign.reference(name)[0].values()))
    folder = campaign.trial(name)
    for limit in (0, campaign.random.randrange(1, largest), largest - 1):
        ended = campaign.run(name, folder, file_bytes=limit)
        assert ended.status == 0 or ended.is_told(), ended.output
    campaign.finish(name, folder)
    counted("full disks", 3)


def test_every_command_that_writes_is_killed(
    commands: dict[str, list[str]], in_place: dict[str, tuple[str, list[str]]]
) -> None:
    from typer.main import get_command

    from headwater.cli.main import app

    lines = commands | {name: arguments for name, (_, arguments) in in_place.items()}
    killed = {" ".join(lines[name][: 2 if lines[name][0] in {"corpus", "tokenizer"} else 1]) for name in KILLS}
    writing = {name for name, given in leaves(get_command(app), "") if given & WRITES}
    assert {*killed, "quickstart", "finetune-sets"} == writing  # the last one trains as `finetune` does


def leaves(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Each command line's words, and what its options and arguments are called."""
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(None):
            yield from leaves(command.get_command(None, inner), f"{name} {inner}".strip())
    else:
        yield name, {option for parameter in command.params for option in (parameter.name, *parameter.opts)}
