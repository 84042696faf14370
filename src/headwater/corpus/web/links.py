"""Select links worth visiting from Reddit submission dumps: `headwater corpus links`.

WebText is the text of the pages that Reddit's users gave at least three karma (GPT-2, section 2.1). The model card
mentions a block list of subreddits that was never published: it is empty by default. `LinksConfig` has every
threshold.

Dumps differ by year: the score is a number or a text, or `ups` minus `downs`; `over_18` and `is_self` are missing
or texts; times are numbers or texts. A line that is not JSON is counted and skipped. A dump that was cut short is
used up to the cut, which is reported. Each dump is a task: its links are sorted into partitions by page, which are
then merged one after the other, so that memory does not grow with the dumps. The order of links depends only on
the dumps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from headwater.config import Config
from headwater.corpus.folder import Tally, merge, rank
from headwater.corpus.task_workers import TaskRunner, parts_folder, remove_parts
from headwater.corpus.web.urls import canonical_url, host_of, page_key
from headwater.errors import DataError, resumable
from headwater.reading import CompressedFile, ParquetTable, parse_json, read_json, sha256_of
from headwater.storage import (
    INTERACTIVE,
    Input,
    Progress,
    Stage,
    download,
    folder_files,
    folder_lock,
    is_url,
    storage_errors,
    write_json,
)

COLUMNS = ("url", "score", "total_score", "submissions", "date", "subreddit")
FUNNEL = "funnel.json"
SHARD_LINKS = 1_000_000
_PARTITION = "{:05d}.jsonl"
NO_TEXT_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".gif", ".gifv", ".webp", ".bmp", ".svg", ".ico", ".tif", ".tiff"),
    *(".mp3", ".ogg", ".wav", ".flac", ".mp4", ".webm", ".avi", ".mov", ".wmv", ".mkv", ".flv", ".swf"),
    *(".zip", ".gz", ".tar", ".rar", ".7z", ".exe", ".dmg", ".iso", ".apk", ".bin", ".torrent"),
)


class LinksConfig(Config):
    """Which links to keep."""

    minimum_score: int = 3
    """Minimum score of a submission (GPT-2, section 2.1: "at least 3 karma")."""
    until: date = date(2017, 12, 31)
    """Last day of a submission (GPT-2, section 2.1: no links after December 2017)."""
    over_18: bool = False
    """Keep submissions marked for adults (the model card: sexual subreddits were left out)."""
    blocked_subreddits: tuple[str, ...] = ()
    """Subreddits to leave out; the list of the model card was not published."""
    blocked_hosts: tuple[str, ...] = ("reddit.com", "redd.it", "redditmedia.com", "reddituploads.com")
    """Hosts to leave out, so that only outbound links stay."""
    blocked_suffixes: tuple[str, ...] = NO_TEXT_SUFFIXES
    """Endings of URLs without text: images, audio, video, archives."""
    partitions: int = Field(default=64, ge=1, le=512)
    """Number of partitions in which links are merged; each must fit in memory."""


@resumable()
def gather_links(
    dumps: Sequence[str | Path],
    out: Path,
    config: LinksConfig | None = None,
    *,
    workers: int = 1,
    progress: Progress = INTERACTIVE,
) -> dict[str, Any]:
    """Write the links folder `out` (Parquet, COLUMNS) unless it exists; return counts.

    A dump may be the URL of a file. The links of each dump are kept in a hidden folder next to `out` until all are
    merged, so that the same command resumes. A dump that cannot be read is left out if there are others.

    Keys: submissions, links, removed {rule: submissions}, examples {rule: [url or title, …]}, broken_lines,
    cut [a sentence for each dump that ends early or is left out]. Raises DataError if there are no submissions.
    """
    config = config or LinksConfig()
    paths = [download(dump) if is_url(dump) else Path(dump) for dump in dumps]
    inputs = {
        f"dump-{index}": Input(role="", path=dump, kind="file", identity=sha256_of(path)) if is_url(dump) else path
        for index, (dump, path) in enumerate(zip(dumps, paths, strict=True))
    }
    stage = Stage(out, kind="links", config=config.to_dict(), inputs=inputs)
    if stage.is_complete(progress):
        remove_parts(stage.out)  # of a run killed after its last step
        return dict(read_json(out / FUNNEL))
    runner = _DumpRunner(parts_folder(stage), config, paths)
    progress.start("links", unit="submissions")
    with storage_errors(stage.out):
        runner.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(runner.folder):
            funnel = _sorted_dumps(runner, workers, progress)
            with stage.write() as work:
                result = funnel.result(_write(_merged(runner), work))
                write_json(work / FUNNEL, result)
    remove_parts(stage.out)
    for sentence in funnel.cut:
        progress.note(sentence)
    progress.finish(f"{result['links']:,} links from {funnel.submissions:,} submissions")
    return result


class LinkRules:
    """Decides which submissions a configuration keeps; a list of hosts costs the same at any length."""

    def __init__(self, config: LinksConfig) -> None:
        self._config = config
        self._hosts = frozenset(host.lower() for host in config.blocked_hosts)
        self._subreddits = frozenset(name.lower() for name in config.blocked_subreddits)
        self._suffixes = tuple(suffix.lower() for suffix in config.blocked_suffixes)

    def apply(self, submission: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return (rule that removes a submission, its link); the rule is empty if the link is kept."""
        config = self._config
        url = canonical_url(str(submission.get("url") or ""))
        created = _number(submission.get("created_utc"))
        day = datetime.fromtimestamp(created, UTC).date() if created is not None and 0 < created < 2**33 else None
        link: dict[str, Any] = {
            "url": url,
            "score": _score(submission),
            "date": day.isoformat() if day else "",
            "subreddit": str(submission.get("subreddit") or ""),
        }
        domain = str(submission.get("domain") or "")
        is_self = submission.get("is_self")
        if domain.startswith("self.") if is_self is None else _flag(is_self):
            return "self post", link
        if not url:
            return "no http(s) URL", link
        labels = host_of(url).partition(":")[0].split(".")
        if any(".".join(labels[start:]) in self._hosts for start in range(len(labels))):
            return "not outbound", link
        if link["score"] < config.minimum_score:
            return f"score below {config.minimum_score}", link
        if not config.over_18 and _flag(submission.get("over_18")):
            return "over 18", link
        if link["subreddit"].lower() in self._subreddits:
            return "blocked subreddit", link
        if day is None or day > config.until:
            return f"after {config.until}", link
        if url.partition("?")[0].lower().endswith(self._suffixes):
            return "no text", link
        return "", link


@dataclass
class _Funnel:
    """What one dump has, or all: its submissions, those that a rule removed, and what could not be read."""

    submissions: int = 0
    removed: Tally = field(default_factory=Tally)
    broken: Tally = field(default_factory=Tally)
    cut: list[str] = field(default_factory=list)

    def result(self, links: int) -> dict[str, Any]:
        return {
            "submissions": self.submissions,
            "links": links,
            "removed": {rule: self.removed.total(rule) for rule in sorted(self.removed)},
            "examples": {rule: entry["examples"] for rule, entry in (self.removed | self.broken).items()},
            "broken_lines": sum(map(self.broken.total, self.broken)),
            "cut": self.cut,
        }


def _submissions(dump: Path, funnel: _Funnel) -> Iterator[dict[str, Any]]:
    file = CompressedFile(dump)
    for number, line in enumerate(file.lines(), 1):
        if not line.strip():
            continue
        try:
            submission = parse_json(line)
        except json.JSONDecodeError:
            submission = None
        if isinstance(submission, dict) and ("url" in submission or "is_self" in submission):
            yield submission
        else:
            shown = line[:80].decode("utf-8", "replace")
            funnel.broken.add("broken lines", f"{dump.name} line {number:,}: {shown}")
    if file.cut:
        funnel.cut.append(file.cut)


def _sorted_dumps(runner: _DumpRunner, workers: int, progress: Progress) -> _Funnel:
    """Sort the links of each dump that is not done into partitions; return what all dumps have.

    Raises DataError if no dump has a submission.
    """
    funnel, every = _Funnel(), range(len(runner.dumps))
    missing = runner.missing("dumps", len(every))
    total = sum(runner.account("dumps", number)["submissions"] for number in every if number not in missing)

    def add(phase: str, number: int) -> None:
        nonlocal total
        total += runner.account(phase, number)["submissions"]
        progress.advance(total)

    runner.report = lambda count: progress.advance(total + count)
    runner.run_all(workers=workers, on_done=add)
    for number in every:
        merge(vars(funnel), runner.account("dumps", number))
    if not funnel.submissions:
        shutil.rmtree(runner.folder)
        raise DataError(
            f"{', '.join(map(str, runner.dumps))} contains no submissions",
            expected="JSON lines with url, score and subreddit",
            repair=funnel.cut[0] if funnel.cut else "Check that these are Reddit submission dumps",
        )
    return funnel


@dataclass(eq=False)
class _DumpRunner(TaskRunner):
    """Sorts the links of dumps into partitions."""

    config: LinksConfig
    dumps: Sequence[Path]

    def phases(self) -> Iterator[tuple[str, int]]:
        yield "dumps", len(self.dumps)

    def input_of(self, phase: str, number: int) -> str:
        return str(self.dumps[number])

    def make_dumps(self, number: int, work: Path) -> dict[str, Any]:
        """Append every link of a dump that is kept to the partition of its page; return the dump's funnel."""
        dump, funnel, rules = self.dumps[number], _Funnel(), LinkRules(self.config)
        try:
            with ExitStack() as opened:
                handles: dict[int, IO[str]] = {}
                for submission in _submissions(dump, funnel):
                    funnel.submissions += 1
                    if funnel.submissions % 10_000 == 0:
                        self.report(funnel.submissions)
                    rule, link = rules.apply(submission)
                    if rule:
                        funnel.removed.add(rule, str(submission.get("url") or submission.get("title") or "")[:200])
                        continue
                    partition = rank(0, page_key(link["url"])) % self.config.partitions
                    if partition not in handles:
                        path = work / _PARTITION.format(partition)
                        handles[partition] = opened.enter_context(path.open("w", encoding="utf-8"))
                    handles[partition].write(json.dumps(link) + "\n")
        except DataError as error:
            if len(self.dumps) == 1:
                raise
            funnel.cut.append(f"Left out{' from there on' if funnel.submissions else ''}: {error}")
        return vars(funnel)


def _write(links: Iterator[dict[str, Any]], out: Path) -> int:
    """Write the links folder's files; return the number of links."""
    import pyarrow
    import pyarrow.parquet

    types = [pyarrow.string(), *[pyarrow.int64()] * 3, pyarrow.string(), pyarrow.string()]
    schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))
    total = 0
    for shard in count():
        rows = list(islice(links, SHARD_LINKS))
        if shard and not rows:
            break
        table = pyarrow.Table.from_pylist(rows, schema=schema)
        pyarrow.parquet.write_table(table, out / f"links-{shard:05d}.parquet", compression="zstd")
        total += len(rows)
    return total


def _merged(runner: _DumpRunner) -> Iterator[dict[str, Any]]:
    """Yield one link a page: its first URL, best and total score, first day."""
    for partition in range(runner.config.partitions):
        pages: dict[str, dict[str, Any]] = {}
        for dump in range(len(runner.dumps)):
            path = runner.output("dumps", dump) / _PARTITION.format(partition)
            if not path.exists():
                continue
            with path.open(encoding="utf-8") as handle:
                for line in handle:
                    link = json.loads(line)
                    page = pages.setdefault(page_key(link["url"]), link | {"total_score": 0, "submissions": 0})
                    page["total_score"] += link["score"]
                    page["submissions"] += 1
                    page["score"] = max(page["score"], link["score"])
                    page["date"] = min(page["date"], link["date"])
        yield from pages.values()


def read_links(folder: Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of a links folder."""
    for path in folder_files(folder, "links", ".parquet"):
        with ParquetTable(path) as file:
            for batch in file.batches(8192):
                yield from batch.to_pylist()


def _score(submission: dict[str, Any]) -> int:
    score = _number(submission.get("score"))
    if score is None:
        score = (_number(submission.get("ups")) or 0) - (_number(submission.get("downs")) or 0)
    return int(score)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 2**33 else None  # sums fit in 64 bits; False for NaN


def _flag(value: Any) -> bool:
    return value.strip().lower() in {"true", "1", "t"} if isinstance(value, str) else bool(value)
