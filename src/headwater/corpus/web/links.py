"""Select links worth visiting from Reddit submission dumps: `headwater corpus links`.

WebText is the text of the pages that Reddit's users gave at least three karma (GPT-2, section 2.1). The model card
mentions a block list of subreddits that was never published: it is empty by default. `LinksConfig` has every
threshold.

Dumps differ by year: the score is a number or a text, or `ups` minus `downs`; `over_18` and `is_self` are missing
or texts; times are numbers or texts. A line that is not JSON is counted and skipped. A dump that was cut short is
used up to the cut, which is reported. Links are merged by page in partitions on disk, so that memory does not grow
with the dumps. Their order depends only on the dumps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import count, islice
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.corpus.ordering import rank
from headwater.corpus.tally import Tally
from headwater.corpus.web.urls import canonical_url, host_of, page_key
from headwater.errors import DataError
from headwater.reading import AnyFile, CompressedFile, ParquetTable, is_remote, parse_json
from headwater.storage import SILENT, Destination, Progress, Stage, folder_files, list_source, write_json

COLUMNS = ("url", "score", "total_score", "submissions", "date", "subreddit")
FUNNEL = "funnel.json"
SHARD_LINKS = 1_000_000
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


def gather_links(
    dumps: Sequence[str | Path], out: str | Path, config: LinksConfig | None = None, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Write the links folder `out` (Parquet, COLUMNS) unless it exists; return counts.

    A dump may be the URL of a file, of a folder of dumps, or a pattern with `*`; `out` may be a URL.
    Keys: submissions, links, removed {rule: submissions}, examples {rule: [url or title, …]}, broken_lines,
    cut [a sentence for each dump that ends early]. Raises DataError for a dump that cannot be read or contains no
    submissions.
    """
    config = config or LinksConfig()
    destination = Destination(out)
    inputs = {f"dump-{index}": dump for index, dump in enumerate(dumps)}
    moves = bool(destination.url)
    stage = Stage(destination.folder, kind="links", config=config.to_dict(), inputs=inputs, moves=moves)
    if destination.is_complete(stage, progress):
        return destination.read_json(FUNNEL)
    files: list[AnyFile] = []
    for dump in dumps:
        files += list_source(dump).paths() if is_remote(dump) else [Path(dump)]
    with stage.write() as work:
        progress.start("links", unit="submissions")
        funnel = _Funnel()
        partitions = work / ".partitions"
        partitions.mkdir()
        _distribute(files, partitions, config, funnel, progress)
        kept = _write(_merged(partitions), work)
        shutil.rmtree(partitions)
        result = funnel.result(kept)
        write_json(work / FUNNEL, result)
        for sentence in funnel.cut:
            progress.note(sentence)
        if not funnel.submissions:
            raise DataError(
                f"{', '.join(map(str, dumps))} contains no submissions",
                expected="JSON lines with url, score and subreddit",
                repair="Check that these are Reddit submission dumps",
            )
        progress.finish(f"{kept:,} links from {funnel.submissions:,} submissions")
    destination.publish(progress)
    return result


def apply_rules(submission: dict[str, Any], config: LinksConfig) -> tuple[str, dict[str, Any]]:
    """Return (rule that removes a submission, its link); the rule is empty if the link is kept."""
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
    host = host_of(url).partition(":")[0]
    if any(f".{host}".endswith(f".{blocked.lower()}") for blocked in config.blocked_hosts):
        return "not outbound", link
    if link["score"] < config.minimum_score:
        return f"score below {config.minimum_score}", link
    if not config.over_18 and _flag(submission.get("over_18")):
        return "over 18", link
    if link["subreddit"].lower() in {name.lower() for name in config.blocked_subreddits}:
        return "blocked subreddit", link
    if day is None or day > config.until:
        return f"after {config.until}", link
    if url.partition("?")[0].lower().endswith(tuple(suffix.lower() for suffix in config.blocked_suffixes)):
        return "no text", link
    return "", link


class _Funnel:
    def __init__(self) -> None:
        self.submissions = self.broken = 0
        self.removed = Tally()
        self.cut: list[str] = []

    def result(self, links: int) -> dict[str, Any]:
        return {
            "submissions": self.submissions,
            "links": links,
            "removed": dict(sorted(self.removed.counts.items())),
            "examples": self.removed.examples,
            "broken_lines": self.broken,
            "cut": self.cut,
        }


def _submissions(dump: AnyFile, funnel: _Funnel) -> Iterator[dict[str, Any]]:
    file = CompressedFile(dump)
    for line in file.lines():
        if not line.strip():
            continue
        try:
            submission = parse_json(line)
        except json.JSONDecodeError:
            submission = None
        if isinstance(submission, dict) and ("url" in submission or "is_self" in submission):
            yield submission
        else:
            funnel.broken += 1
    if file.cut:
        funnel.cut.append(file.cut)


def _distribute(
    dumps: Sequence[AnyFile], folder: Path, config: LinksConfig, funnel: _Funnel, progress: Progress
) -> None:
    """Append every link that is kept to the partition of its page."""
    handles = [(folder / f"{index:05d}.jsonl").open("w", encoding="utf-8") for index in range(config.partitions)]
    try:
        for dump in dumps:
            for submission in _submissions(dump, funnel):
                funnel.submissions += 1
                if funnel.submissions % 10_000 == 0:
                    progress.advance(funnel.submissions)
                rule, link = apply_rules(submission, config)
                if rule:
                    shown = str(submission.get("url") or submission.get("title") or "")[:200]
                    funnel.removed.add(rule, shown)
                    continue
                handle = handles[rank(0, page_key(link["url"])) % config.partitions]
                handle.write(json.dumps(link) + "\n")
    finally:
        for handle in handles:
            handle.close()


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


def _merged(partitions: Path) -> Iterator[dict[str, Any]]:
    """Yield one link a page: its first URL, best and total score, first day."""
    for path in sorted(partitions.iterdir()):
        pages: dict[str, dict[str, Any]] = {}
        with path.open(encoding="utf-8") as handle:
            for line in handle:
                link = json.loads(line)
                page = pages.setdefault(page_key(link["url"]), link | {"total_score": 0, "submissions": 0})
                page["total_score"] += link["score"]
                page["submissions"] += 1
                page["score"] = max(page["score"], link["score"])
                page["date"] = min(page["date"], link["date"])
        yield from pages.values()


def read_links(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of a links folder, local or remote."""
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
