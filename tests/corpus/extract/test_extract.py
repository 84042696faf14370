"""Pages out of every container, text out of every page, and nothing that a page does stops the rest."""

from __future__ import annotations

import gzip
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("resiliparse")
pytest.importorskip("fastwarc")

from headwater.corpus import (
    Page,
    extract_page,
    read_pages,
)
from headwater.corpus.building.parts import SECONDS, Extractor
from headwater.corpus.extract.page_text import MEMORY_BYTES, decode_page, tidy
from headwater.corpus.filters.gutenberg import without_gutenberg
from headwater.corpus.folder import Tally
from headwater.corpus.sources.pages import PAGE_BYTES, holds_pages, unpack_body
from headwater.errors import DataError

ARTICLE = "The river ran over the stones, and nobody could say how long it had done so. " * 6
HTML = f"""<html><head><title>River</title><script>var x = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/about">About</a></nav>
<article><h1>The river</h1><p>{ARTICLE}</p><p>Second paragraph, {ARTICLE}</p></article>
<footer>Copyright and cookies</footer></body></html>"""


def warc_record(
    url: str, body: bytes, *, status: str = "200 OK", kind: str = "text/html; charset=utf-8", extra: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    http = head.encode() + body
    header = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2017-05-06T07:08:09Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{abs(hash(url)):032x}>\r\nWARC-Target-URI: {url}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return header.encode() + http + b"\r\n\r\n"


def test_pages_of_a_warc(tmp_path: Path) -> None:
    records = [
        warc_record("http://a.org/1", HTML.encode()),
        warc_record("http://a.org/gone", b"<p>gone</p>", status="404 Not Found"),
        warc_record("http://a.org/photo", b"\xff\xd8", kind="image/jpeg"),
        warc_record("http://a.org/plain", "plain 강".encode(), kind="text/plain; charset=utf-8"),
        warc_record("http://a.org/large", b"x" * (PAGE_BYTES + 1)),
        warc_record("<http://a.org/2>", HTML.encode()),  # as Wget writes it
    ]
    for name, content in (
        ("a.warc", b"".join(records)),
        ("a.warc.gz", b"".join(gzip.compress(record) for record in records)),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        notes: list[str] = []
        left_out = Tally()
        pages = list(read_pages(path, notes, left_out))
        assert [page.url for page in pages] == ["http://a.org/1", "http://a.org/plain", "http://a.org/2"]
        assert [page.kind for page in pages] == ["html", "text", "html"]
        assert pages[0].date == "2017-05-06"
        assert notes == []
        assert left_out[f"pages larger than {PAGE_BYTES:,} bytes"]["examples"] == ["http://a.org/large"]


def test_bodies_are_unpacked_once_as_their_headers_declare(tmp_path: Path) -> None:
    """Crawlers that keep what came over the wire keep chunks and gzip; others unpack and keep the header."""
    page = HTML.encode()

    def chunks(data: bytes) -> bytes:
        pieces = [data[start : start + 500] for start in range(0, len(data), 500)]
        return b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])

    chunked, packed = "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n"
    raw = zlib.compressobj(wbits=-15)
    bodies = [
        (page, ""),
        (chunks(page), chunked),
        (gzip.compress(page), packed),
        (chunks(gzip.compress(page)), chunked + packed),
        (zlib.compress(page), "Content-Encoding: deflate\r\n"),
        (raw.compress(page) + raw.flush(), "Content-Encoding: deflate\r\n"),
        (page, chunked + packed),
        (page, "Content-Encoding: br\r\n"),
        (b"\x8b\x02\x80not read\x03", "Content-Encoding: br\r\n"),
        (gzip.compress(b"\0" * (PAGE_BYTES + 1)), packed),
        (gzip.compress(page[:400]) + gzip.compress(page[400:]) + b"\r\nno member", packed),
    ]
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(warc_record(f"http://a.org/{i}", b, extra=e) for i, (b, e) in enumerate(bodies)))
    left_out = Tally()
    assert [found.data for found in read_pages(path, [], left_out)] == [page] * 9
    assert {what: entry["examples"] for what, entry in left_out.items()} == {
        "pages in the encoding br, which is not supported": ["http://a.org/8"],
        f"pages larger than {PAGE_BYTES:,} bytes": ["http://a.org/9"],
    }


def test_a_text_that_begins_with_a_number_is_not_chunked(tmp_path: Path) -> None:
    """Crawlers that join the chunks keep the header; `12` is then the first line of a text, not a size."""
    texts = [b"2024\r\nwas a good year.", b"12\r\nfeet of snow fell, and no bus came.", b"a\r\nfine day"]
    cut = [b"fff\r\n<p>half a page", b"3\r\none\r\n5\r\ntw"]
    extra = "Transfer-Encoding: chunked\r\n"
    path = tmp_path / "a.warc"
    path.write_bytes(
        b"".join(warc_record(f"http://a.org/{i}", body, extra=extra) for i, body in enumerate([*texts, *cut]))
    )
    assert [found.data for found in read_pages(path, [])] == [*texts, b"<p>half a page", b"onetw"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_members_of_a_packed_body_may_be_anywhere(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("headwater.corpus.sources.pages._BODY_BYTES", size)
    packed = b"".join(map(gzip.compress, [b"one ", b"", b"two"])) + b"\x1fno member"
    assert unpack_body(packed, 100) == (b"one two", True)
    assert unpack_body(packed, 5)[0] == b"one t"
    assert unpack_body(packed[:-20], 100)[1] is False


def test_the_suffix_of_a_name_decides_a_files_format(tmp_path: Path) -> None:
    for name in ("berlin.wetter.html", "page.xml.html", "old.warc.html"):
        (tmp_path / name).write_text(HTML)
        assert [page.kind for page in read_pages(tmp_path / name, [])] == ["html"]


@pytest.mark.parametrize("kept", [0.999, 0.68, 0.47])
def test_a_warc_cut_short_is_used_to_the_cut(tmp_path: Path, kept: float) -> None:
    records = [warc_record(f"http://a.org/{i}", (HTML + f"<p>{i}</p>").encode()) for i in range(20)]
    content = b"".join(gzip.compress(record) for record in records)
    path = tmp_path / "a.warc.gz"
    path.write_bytes(content[: int(len(content) * kept)])
    notes: list[str] = []
    pages = list(read_pages(path, notes))
    assert int(20 * kept) - 1 <= len(pages) <= 20
    assert all(page.data.endswith(b"</p>") for page in pages), "no half page"
    [note] = notes
    assert "a.warc.gz" in note


def test_a_file_that_is_not_a_warc_is_named(tmp_path: Path) -> None:
    for name, content in (("a.warc.gz", b""), ("b.warc", b"not a warc\n" * 50)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            list(read_pages(tmp_path / name, []))


def test_the_main_text_of_a_page() -> None:
    text = extract_page(Page("a", HTML.encode())).text
    assert "Second paragraph, The river ran" in text
    for boilerplate in ("Copyright", "About", "var x"):
        assert boilerplate not in text


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("강물이 흐른다".encode("euc-kr"), "euc-kr"),
        ("<meta charset=euc-kr>강물이 흐른다".encode("euc-kr"), ""),
        ("뷁 강물이 흐른다".encode("cp949"), "euc-kr"),
        ("<meta charset=euc-kr>뷁 강물이 흐른다".encode("cp949"), ""),
        (("오늘은 날씨가 좋습니다. 안녕하세요. " * 3 + "강물이 흐른다").encode("cp949"), ""),
        (("오늘은 날씨가 좋습니다. 안녕하세요. " * 3 + "강물이 흐른다").encode("cp949"), "cp949"),
        ("<meta charset=utf-8>강물이 흐른다".encode(), "no-such-encoding"),
        ("<meta charset=utf-8>강물이 흐른다".encode(), "us-ascii"),
        ("\ufeff강물이 흐른다".encode(), "utf-8"),
    ],
)
def test_encodings(data: bytes, charset: str) -> None:
    assert decode_page(data, charset)[0].endswith("강물이 흐른다")


@pytest.mark.parametrize(
    ("text", "encoding", "charset"),
    [("①髙橋㈱", "cp932", "shift_jis"), ("€㐂", "gb18030", "gb2312"), ("着喆", "big5hkscs", "big5")],
)
def test_an_encoding_has_the_characters_that_the_web_gives_it(text: str, encoding: str, charset: str) -> None:
    assert decode_page(text.encode(encoding), charset)[0] == text
    assert decode_page(f"<meta charset={charset}>{text}".encode(encoding))[0].endswith(text)


@pytest.mark.parametrize("is_html", [True, False])
def test_a_few_characters_beyond_ascii_do_not_hide_utf8(is_html: bool) -> None:
    text = ("The quick brown fox jumps over the lazy dog. " * 20 + "\n") * 40 + "Then she went to the café."
    assert decode_page(text.encode(), is_html=is_html)[0] == text
    declared = f"<meta charset=windows-1252>{text}"
    assert decode_page(declared.encode())[0] == declared, "valid UTF-8 is UTF-8, whatever it declares"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Le café était fermé à l'été. ", "utf-8"),
        ("河は北に流れ、町は岸にある。", "utf-8"),
        ("河は北に流れ、町は岸にある。", "euc_jp"),
        ("河流向北流，城市在岸边。", "gb18030"),
        ("河流向北流，城市在岸邊。", "big5"),
    ],
)
def test_a_broken_character_does_not_change_the_encoding(text: str, encoding: str) -> None:
    text *= 20
    cut = f"{text}河".encode(encoding)[:-1]
    for head, charset in (("", encoding), (f"<meta charset={encoding}>", ""), ("", "")):
        assert decode_page(head.encode() + cut, charset)[0] == head + text
    if encoding == "utf-8":
        assert decode_page(b"\xe9 " + cut, "utf-8")[0] == f" {text}"
        wrongly_declared = "<meta charset=utf-8>un café crème".encode("cp1252")
        assert decode_page(wrongly_declared)[0].endswith("un café crème")


def test_a_text_may_mention_a_charset() -> None:
    text = 'Write <meta charset="iso-8859-1"> in the head. Café à la carte.'
    assert extract_page(Page("a.md", text.encode(), kind="text")).text == text


def test_pages_that_stall_or_end_the_extractor_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = b"<div>" * 100_000 + b"deep"
    good = [Page(f"good-{i}", b"<p>text</p>") for i in range(40)]
    pages = [*good[:20], Page("nested", nested), *good[20:]]
    with closing(Extractor(seconds=2.0)) as extractor:
        found = [
            (page.name, text, reason)
            for _, page, (text, reason, *_) in extractor.texts(("", page) for page in pages)
        ]
        assert [name for name, _, _ in found] == [page.name for page in pages]
        assert {text for name, text, _ in found if name != "nested"} == {"text"}
        assert [reason for name, _, reason in found if name == "nested"] == ["the extractor took longer than 2 s"]
    with closing(Extractor()) as extractor:
        texts = extractor.texts(("", page) for page in (*good[:3], Page("killer", b"kill"), *good[3:5]))
        first = next(texts)
        assert (first[1].name, first[2].text) == ("good-0", "text")
        [worker] = extractor._pool._workers
        worker.kill()
        rest = list(texts)
        assert [page.name for _, page, _ in rest] == ["good-1", "good-2", "killer", "good-3", "good-4"]
        assert sum(found.reason == "the extractor crashed on it" for *_, found in rest) <= 1


def test_a_page_that_takes_too_long_by_the_clock_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.corpus.building.parts._PATIENCE", 0.002)
    with closing(Extractor(seconds=500.0)) as extractor:
        pages = [Page("nested", b"<div>" * 100_000 + b"deep"), Page("good", b"<p>text</p>")]
        results = [extracted for *_, extracted in extractor.texts(("", page) for page in pages)]
    assert [result.reason for result in results] == ["the extractor took longer than 1 s by the clock", ""]


@pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
def test_the_extracting_process_has_a_limit_of_memory() -> None:
    import resource

    with closing(Extractor()) as extractor:
        list(extractor.texts([("", Page("a", b"<p>text</p>"))]))
        [worker] = extractor._pool._workers
        limits = resource.prlimit(worker.pid, resource.RLIMIT_AS)
    assert limits[0] == MEMORY_BYTES


def test_an_exception_in_an_extractor_is_a_reason() -> None:
    with closing(Extractor()) as extractor:
        [(_, _, (text, reason, *_))] = extractor.texts([("", Page("a", b"x", kind="nonsense", charset="utf-8"))])  # type: ignore[arg-type]
        assert (text, reason) == ("x", "")
        pages = [Page("empty", b""), Page("nul", b"\x00" * 100), Page("noise", bytes(range(256)) * 50)]
        assert len(list(extractor.texts(("", page) for page in pages))) == 3


def test_a_warc_in_one_gzip_member_is_whole(tmp_path: Path) -> None:
    records = b"".join(warc_record(f"http://a.org/{number}", HTML.encode()) for number in range(6))
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(records))
    notes: list[str] = []
    assert len(list(read_pages(tmp_path / "a.warc.gz", notes))) == 6
    assert notes == []


def test_gutenberg_keeps_only_the_book() -> None:
    text = (
        "The Project Gutenberg EBook of Rivers\n\n*** START OF THIS PROJECT GUTENBERG EBOOK RIVERS ***\n\n"
        "Produced by A. Person\nand another\n\nRIVERS\n\nIt ran.\n\n*** END OF THIS PROJECT GUTENBERG EBOOK ***\n"
    )
    assert tidy(without_gutenberg(text)) == "RIVERS\n\nIt ran."
    assert without_gutenberg("An ordinary text.") == "An ordinary text."
    assert tidy(without_gutenberg(text.replace("EBOOK RIVERS", "EBOOK\nRIVERS"))) == "RIVERS\n\nIt ran."
    unclosed = text.replace("RIVERS ***", "RIVERS")
    assert without_gutenberg(unclosed) == unclosed  # the end mark does not close the start mark


def test_tidy() -> None:
    assert tidy("\ufeff a\xa0b  \r\n\r\n\r\n\r\nc\x00 \n") == "a b\n\nc"


def test_names_decide_which_files_have_pages() -> None:
    assert holds_pages(Path("CC-MAIN.warc.wet.gz"))
    assert holds_pages(Path("a.HTML"))
    assert not holds_pages(Path("a.txt"))


def test_real_pages_of_common_crawl(data: Path) -> None:
    notes: list[str] = []
    texts = {}
    with closing(Extractor()) as extractor:
        for path in sorted((data / "webtext-pipeline" / "warc").iterdir()):
            for _, page, (text, reason, *_) in extractor.texts(("", page) for page in read_pages(path, notes)):
                assert not reason
                texts[page.url, page.kind] = text
    assert notes == []
    assert len(texts) == 18
    assert "комплексные услуги пожарной безопасности" in texts["http://01spb.ru/company/", "html"], "windows-1251"
    assert SECONDS > 1
