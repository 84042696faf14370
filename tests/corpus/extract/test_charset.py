"""A page is read in the encoding that it has, whatever it or its server declares."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("resiliparse")

from headwater.corpus import Page, build_corpus, extract_page, load_recipe, read_documents, read_funnel
from headwater.corpus.building.parts import Extractor
from headwater.corpus.extract.page_text import decode_page
from headwater.errors import DataError

TEXTS = {
    "cp949": "강물은 북쪽 산에서 시작하여 남쪽 바다로 흐른다. 사람들은 강가에 모여 이야기를 나눈다.",
    "cp932": "河は北の山から流れ、町は岸にある。今日は天気がよいので、人々は川辺に集まる。",
    "euc_jp": "河は北の山から流れ、町は岸にある。今日は天気がよいので、人々は川辺に集まる。",
    "iso2022_jp": "河は北の山から流れ、町は岸にある。今日は天気がよいので、人々は川辺に集まる。",
    "gb18030": "河流从北方的山中流出，城市坐落在岸边。今天天气很好，人们聚集在河边聊天。",
    "big5": "河流從北方的山中流出，城市坐落在岸邊。今天天氣很好，人們聚集在河邊聊天。",
    "cp1251": "Река течёт с северных гор к южному морю. Сегодня хорошая погода, и люди собираются.",
    "koi8_r": "Река течёт с северных гор к южному морю. Сегодня хорошая погода, и люди собираются.",
    "cp1252": "La rivière coule du nord vers la mer. L'été, les élèves se réunissent à la plage.",
    "utf-8": "河流从北方的山中流出，城市坐落在岸边。강물은 흐른다. Река течёт.",
}
DECLARATIONS = {
    "none": ("", ""),
    "right": ("{}", ""),
    "right header": ("", "{}"),
    "wrong meta": ("utf-8", ""),
    "wrong header": ("", "utf-8"),
    "Latin header": ("", "iso-8859-1"),
    "Latin header, right meta": ("{}", "iso-8859-1"),
    "Chinese meta": ("gb2312", ""),
    "no such charset": ("utf-42", "latin-99"),
}


def decode(data: bytes, charset: str = "") -> str:
    return decode_page(data, charset)[0]


def page_in(encoding: str, meta: str) -> str:
    head = f"<meta charset={meta}>" if meta else ""
    return f"<html><head>{head}<title>page</title></head><body><p class=text>{TEXTS[encoding]}</p></body></html>"


@pytest.mark.parametrize("declaration", DECLARATIONS)
@pytest.mark.parametrize("encoding", TEXTS)
def test_a_page_is_decoded_despite_a_wrong_declaration(encoding: str, declaration: str) -> None:
    meta, header = (name.format(encoding) for name in DECLARATIONS[declaration])
    page = page_in(encoding, meta)
    assert decode(page.encode(encoding), header) == page


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(mark: str) -> None:
    assert decode("강물이 흐른다".encode(mark), "euc-kr") == "강물이 흐른다"


@pytest.mark.parametrize("meta", ["gb2312", "big5", "euc-kr"])
def test_a_short_page_with_a_wrong_charset_is_decoded(meta: str) -> None:
    korean, chinese = "오늘은 날씨가 좋습니다. 강가에 모여", "今天天气很好，我们去公园"
    cases = [(korean, "cp949"), (korean, "utf-8"), ("今日は天気がいいですね", "cp932"), (chinese, "utf-8")]
    if meta == "gb2312":
        cases.append((chinese, meta))
    for text, encoding in cases:
        page = f"<meta charset={meta}><p>{text}</p>"
        assert decode(page.encode(encoding)) == page, encoding


def test_another_encoding_than_declared_is_reported() -> None:
    assert decode_page(page_in("cp949", "utf-8").encode("cp949"))[1] == "cp949 (declared utf-8)"
    assert decode_page(page_in("cp949", "euc-kr").encode("cp949"))[1] == "cp949"
    assert decode_page(b"<meta charset=euc-kr><p>ascii")[1] == "utf-8"


@pytest.mark.parametrize("name", ["euc-kr", "cp949", "ms949", "ks_c_5601-1987"])
def test_one_word_is_read_in_the_encoding_that_the_html_declares(name: str) -> None:
    page = f"<html><head><meta charset='{name}'></head><body><p>오늘</p></body></html>"
    assert decode(page.encode("cp949")) == page


@pytest.mark.parametrize("text", ["오늘", "이야기를", "날씨는 맑고"])
def test_a_korean_word_in_an_english_page_is_read(text: str) -> None:
    page = f"<p>Welcome to our page. {text} </p>"
    for header in ("", "utf-8"):
        assert decode(page.encode("cp949"), header) == page


@pytest.mark.parametrize("declared", ["gb2312", "big5", "shift_jis", "euc-kr", "euc-jp", "windows-1251"])
@pytest.mark.parametrize("text", ["오늘", "안녕", "今日", "你好", "Да", "L’été"])
def test_a_word_in_utf8_is_read_despite_a_wrong_declaration(text: str, declared: str) -> None:
    page = f"<html><head><meta charset={declared}></head><body><p>{text}</p></body></html>"
    assert decode(page.encode()) == page


def test_rare_characters_reject_the_encoding_that_is_declared() -> None:
    for text, encoding in (("日本語のページ", "cp932"), ("今天天氣很好", "big5")):
        page = f"<meta charset=gb2312><p>{text}</p>"
        assert decode(page.encode(encoding)) == page
    assert "Привет мир" in decode("<meta charset=gb2312><p>Привет мир</p>".encode("cp1251"))
    for text, encoding in (
        ("着喆", "big5hkscs"),
        ("歡迎來到臺灣繁體網頁", "gb18030"),
    ):
        rare = f"<meta charset={encoding}><p>{text}</p>"
        assert decode(rare.encode(encoding)) == rare


def test_bytes_that_are_not_text_are_undecided() -> None:
    noise = bytes((7 * number * number + 129 * number) % 256 for number in range(4000)).replace(b"\x00", b"")
    with pytest.raises(DataError, match="encoding cannot be decided"):
        decode(b"<p>" + noise)
    with closing(Extractor()) as extractor:
        [(_, _, (text, reason, *_))] = extractor.texts([("a.html", Page("a", b"<p>" + noise))])
    assert (text, reason) == ("", "its encoding cannot be decided")


@pytest.mark.parametrize("charset", ["undefined", "rot13", "idna", "base64"])
def test_a_codec_that_is_not_an_encoding_of_pages_is_ignored(charset: str) -> None:
    page = Page("a.html", "<p>Le café est ouvert, la rivière coule.".encode("cp1252"), charset=charset)
    assert "café" in extract_page(page).text


def test_a_corpus_counts_the_encodings_of_its_pages(tmp_path: Path) -> None:
    source = tmp_path / "pages"
    source.mkdir()
    for number, (encoding, meta) in enumerate((("cp949", "euc-kr"), ("cp949", "utf-8"), ("utf-8", "gb2312"))):
        content = page_in(encoding, meta).replace("page", f"page {number}").replace("흐른다", f"흐른다 {number}")
        (source / f"{number}.html").write_bytes(content.encode(encoding))
    build_corpus([source], tmp_path / "corpus", load_recipe("plain"))
    counted = read_funnel(tmp_path / "corpus")["encodings"]
    assert counted == {"cp949": 1, "cp949 (declared utf-8)": 1, "utf-8 (declared gb18030)": 1}
    assert all("흐른다" in document.text for document in read_documents(tmp_path / "corpus"))
