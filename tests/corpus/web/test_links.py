"""From dumps of any year and compression to links: the paper's rules, each counted."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import main
from headwater.corpus import LinksConfig, gather_links
from headwater.corpus.web import links as links_module
from headwater.corpus.web.links import LinkRules, read_links
from headwater.corpus.web.urls import canonical_url, page_key
from headwater.errors import DataError, UsageError
from headwater.storage import open_folder

GOOD: dict[str, Any] = {
    "url": "http://example.com/story",
    "score": 5,
    "is_self": False,
    "over_18": False,
    "subreddit": "science",
    "created_utc": 1_400_000_000,
}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, ""),
        ({"score": 3}, ""),
        ({"score": 2}, "score below 3"),
        ({"score": "7"}, ""),
        ({"score": None, "ups": 9, "downs": 2}, ""),
        ({"score": None, "ups": "4", "downs": 2}, "score below 3"),
        ({"is_self": True}, "self post"),
        ({"is_self": "true"}, "self post"),
        ({"is_self": None, "domain": "self.science"}, "self post"),
        ({"is_self": False, "domain": "self.com", "url": "https://www.self.com/story"}, ""),
        ({"over_18": True}, "over 18"),
        ({"over_18": "false"}, ""),
        ({"created_utc": "1400000000"}, ""),
        ({"created_utc": 1_514_764_799}, ""),
        ({"created_utc": 1_514_764_800}, "after 2017-12-31"),
        ({"created_utc": None}, "after 2017-12-31"),
        ({"url": "https://www.reddit.com/r/x"}, "not outbound"),
        ({"url": "http://i.redd.it/x"}, "not outbound"),
        ({"url": "http://notreddit.com/x"}, ""),
        ({"url": "http://a.org/photo.JPG?size=2"}, "no text"),
        ({"url": "mailto:someone"}, "no http(s) URL"),
        ({"url": None}, "no http(s) URL"),
        ({"subreddit": "Blocked"}, "blocked subreddit"),
        ({"score": 10**400}, "score below 3"),
        ({"created_utc": 10**400}, "after 2017-12-31"),
    ],
)
def test_each_rule(changes: dict[str, Any], rule: str) -> None:
    config = LinksConfig(blocked_subreddits=("blocked",))
    assert LinkRules(config).apply(GOOD | changes)[0] == rule


def test_blocked_names_may_have_capitals() -> None:
    config = LinksConfig(blocked_hosts=("Example.com",), blocked_suffixes=(".PDF",))
    assert LinkRules(config).apply(GOOD)[0] == "not outbound"
    assert LinkRules(config).apply(GOOD | {"url": "http://example.org/story.pdf"})[0] == "no text"


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTP://Www.Example.COM:80", "http://www.example.com/"),
        ("http://example.com:8080/%7euser/?utm_source=x&id=3#top", "http://example.com:8080/~user/?id=3"),
        ("https://straße.de/", "https://xn--strae-oqa.de/"),
        ("https://exämple.de/ü?q=ü&amp;x=1", "https://xn--exmple-cua.de/%C3%BC?q=%C3%BC&x=1"),
        ("http://example.com/?copy=1&copy=2", "http://example.com/?copy=1&copy=2"),
        ("http://user:secret@example.com/a", "http://example.com/a"),
        ("http://93.184.216.34/a", "http://93.184.216.34/a"),
        ("ftp://example.com/", ""),
        ("http://localhost/", ""),
        ("http://a..b/", ""),
        ("http://[::1/", ""),
        ("http://example.com:99999/", ""),
        ("http://example.com/" + "a" * 3000, ""),
        ("http://example.com/" + "ü" * 500, ""),
        ("http://example.com/?x=1&amp;amp;y=2", "http://example.com/?x=1&y=2"),
        ("not a url", ""),
        ("http://example.com/a/./b/../private", "http://example.com/a/private"),
        ("http://example.com/../%2E%2e/a//b/..", "http://example.com/a//"),
        ("http://example.com/caf\udce9", "http://example.com/caf%E9"),
        ("http://example.com/\ud800", ""),
        ("http://127.1/", ""),
        ("http://0177.0.0.1/", ""),
        ("http://0x7f.0.0.1/", ""),
    ],
)
def test_canonical_urls(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical


@settings(deadline=None)
@given(st.text(), st.text("abc./:?&=#%é@[]\\ mp;", max_size=30))
def test_canonical_is_final_and_never_fails(noise: str, rest: str) -> None:
    for url in (noise, f"http://example.com/{rest}", f"http://{rest}"):
        once = canonical_url(url)
        assert canonical_url(once) == once


def test_the_same_page() -> None:
    assert page_key("https://www.example.com/a/") == page_key("http://example.com/a")


def write_dump(path: Path, rows: list[dict[str, Any]]) -> Path:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=29)
        half = len(content) // 2  # several frames, as parallel compressors write
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
        frames = [compressor.compress(content[:half]), compressor.compress(content[half:])]
        path.write_bytes(b"".join(frames))
        return path
    opener: dict[str, Any] = {".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress}
    path.write_bytes(opener.get(path.suffix, bytes)(content))
    return path


@pytest.mark.parametrize("suffix", [".zst", ".xz", ".bz2", ".gz", ".json"])
def test_pages_merge_with_their_scores(tmp_path: Path, suffix: str) -> None:
    rows = [
        GOOD | {"created_utc": 1_400_000_000},
        GOOD | {"url": "https://www.example.com/story/", "score": 40, "created_utc": 1_300_000_000},
        GOOD | {"url": "http://example.com/story?utm_source=feed", "score": 2},
        GOOD | {"url": "http://example.org/other"},
    ]
    dump = write_dump(tmp_path / f"RS{suffix}", rows)
    found = gather_links([dump], tmp_path / "links")
    assert (found["submissions"], found["links"], found["removed"]) == (4, 2, {"score below 3": 1})
    links = {link["url"]: link for link in read_links(tmp_path / "links")}
    assert links["http://example.com/story"] == {
        "url": "http://example.com/story",
        "score": 40,
        "total_score": 45,
        "submissions": 2,
        "date": "2011-03-13",
        "subreddit": "science",
    }


@pytest.mark.parametrize("suffix", [".zst", ".xz", ".bz2", ".gz"])
def test_a_dump_cut_short_is_used_to_the_cut(tmp_path: Path, suffix: str) -> None:
    noise = random.Random(1)  # what compresses badly: every format has given something before the cut
    rows = [GOOD | {"url": f"http://example.com/{i}", "title": noise.randbytes(250).hex()} for i in range(5000)]
    dump = write_dump(tmp_path / f"RS{suffix}", rows)
    content = dump.read_bytes()
    dump.write_bytes(content[: len(content) * 3 // 4])
    found = gather_links([dump], tmp_path / "links")
    assert 1000 < found["links"] < 5000
    assert found["broken_lines"] == 0
    [sentence] = found["cut"]
    assert dump.name in sentence
    assert "ends early" in sentence


def test_of_a_cut_gzip_file_all_before_the_cut_is_given(tmp_path: Path) -> None:
    rows = [GOOD | {"url": f"http://example.com/{i}"} for i in range(50)]
    dump = write_dump(tmp_path / "RS.gz", rows)
    dump.write_bytes(dump.read_bytes()[:-4])  # nothing but the length at its end
    found = gather_links([dump], tmp_path / "links")
    assert found["links"] == 50
    assert "after " in found["cut"][0]


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    dump = tmp_path / "RS.json"
    dump.write_text("\n".join([json.dumps(GOOD), "{broken", "[]", "3", "", json.dumps({"other": 1})]))
    found = gather_links([dump], tmp_path / "links")
    assert (found["links"], found["broken_lines"]) == (1, 4)
    assert found["examples"]["broken lines"][0] == "RS.json line 2: {broken"


def test_dumps_are_tasks_that_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = [
        write_dump(
            tmp_path / f"RS-{n}.gz", [GOOD | {"url": f"http://example.com/{(i * n) % 50}"} for i in range(90)]
        )
        for n in range(4)
    ]
    make, done = links_module._DumpRunner.make_dumps, list[int]()

    def stopping(runner: Any, number: int, work: Path) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(number)
        return make(runner, number, work)

    monkeypatch.setattr(links_module._DumpRunner, "make_dumps", stopping)
    with pytest.raises(KeyboardInterrupt):
        gather_links(dumps, tmp_path / "links")
    monkeypatch.setattr(links_module._DumpRunner, "make_dumps", lambda *task: done.append(task[1]) or make(*task))
    gather_links(dumps, tmp_path / "links")
    assert done == [0, 1, 2, 3], "each once"
    gather_links(dumps, tmp_path / "parallel", workers=2)
    assert open_folder(tmp_path / "links").files == open_folder(tmp_path / "parallel").files
    assert not list(tmp_path.glob(".*"))


def test_a_dump_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    good = write_dump(tmp_path / "RS-1.gz", [GOOD])
    (tmp_path / "RS-2.zst").write_bytes(b"\x28\xb5\x2f\xfd broken")
    found = gather_links([good, tmp_path / "RS-2.zst"], tmp_path / "links")
    assert found["links"] == 1
    assert found["cut"][0].startswith("Left out: ")
    assert "RS-2.zst" in found["cut"][0]


def test_blocked_hosts_match_at_their_dots() -> None:
    rules = LinkRules(LinksConfig(blocked_hosts=tuple(f"host{number}.org" for number in range(10_000))))
    kept = {
        rule for number in range(3000) if (rule := rules.apply(GOOD | {"url": f"http://a.b{number}.com/x"})[0])
    }
    assert kept == set()
    assert rules.apply(GOOD | {"url": "http://www.host77.org/"})[0] == "not outbound"
    assert rules.apply(GOOD | {"url": "http://myhost77.org/"})[0] == ""


def test_no_partitions_are_refused() -> None:
    with pytest.raises(UsageError, match="partitions"):
        LinksConfig.build({"partitions": 0})


def test_half_characters_and_huge_numbers_harm_no_other_line(tmp_path: Path) -> None:
    """JSON can spell half of a pair of surrogates, which no file can hold, and a number of any length."""
    rows = [
        GOOD | {"subreddit": "river\ud83d"},
        GOOD | {"url": "http://example.com/\ud83d"},
        {"is_self": True, "title": "\udc00"},
        *[GOOD | {"score": 2**53 - 1}] * 2000,  # whose sum is none of 64 bits
        GOOD | {"score": 10**400},
    ]
    dump = tmp_path / "RS.json"
    dump.write_text("\n".join(map(json.dumps, rows)))
    found = gather_links([dump], tmp_path / "links")
    assert (found["submissions"], found["links"]) == (len(rows), 1)
    assert [link["subreddit"] for link in read_links(tmp_path / "links")] == ["river\ufffd"]


@pytest.mark.parametrize("content", [b"", b"not a dump\n", b"\x28\xb5\x2f\xfd broken"])
def test_a_file_that_is_not_a_dump_is_named(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("zstandard")
    dump = tmp_path / ("RS.zst" if content.startswith(b"\x28") else "RS.json")
    dump.write_bytes(content)
    with pytest.raises(DataError, match=dump.name):
        gather_links([dump], tmp_path / "links")
    assert not (tmp_path / "links").exists()


def test_a_folder_given_as_a_dump_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder; expected a file"):
        gather_links([tmp_path], tmp_path / "links")


def test_real_dumps_of_2005(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = sorted((data / "webtext-pipeline" / "reddit").glob("*.xz"))
    arguments = ["corpus", "links", *map(str, dumps), "--out", str(tmp_path / "links"), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["submissions"] == 1182
    assert found["links"] == len(list(read_links(tmp_path / "links"))) == 836
    assert main([*arguments, "--set", "minimum_scor=5"]) == 2
    assert "minimum_score" in capsys.readouterr().err
