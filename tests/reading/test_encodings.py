"""A text file is read in the encoding that it has or that the user names."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import DataError, UsageError
from headwater.reading import CompressedFile, file_encoding, open_table, split_text, text_blocks, text_encoding
from headwater.reading.files import FileLimits

KOREAN = "강물은 북쪽 산에서 시작하여 남쪽 바다로 흐른다.\n사람들은 강가에 모여 이야기를 나눈다.\n"
OTHERS = {
    "cp932": "河は北の山から流れ、町は岸にある。今日は天気がよいので、人々は川辺に集まる。\n",
    "euc_jp": "河は北の山から流れ、町は岸にある。今日は天気がよいので、人々は川辺に集まる。\n",
    "gb18030": "河流从北方的山中流出，城市坐落在岸边。今天天气很好，人们聚集在河边聊天。\n",
    "big5": "河流從北方的山中流出，城市坐落在岸邊。今天天氣很好，人們聚集在河邊聊天。\n",
    "cp1251": "Река течёт с северных гор к южному морю. Сегодня хорошая погода, и люди собираются.\n",
    "koi8_r": "Река течёт с северных гор к южному морю. Сегодня хорошая погода, и люди собираются.\n",
    "cp1252": "La rivière coule du nord vers la mer. L'été, les élèves se réunissent à la plage.\n",
}


def read(path: Path, data: bytes, encoding: str | None = "", block: int | None = None) -> str:
    path.write_bytes(data)
    return "".join(text_blocks(path, block, encoding))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp949", "euc-kr"])
def test_what_an_encoding_clearly_is_needs_no_name(tmp_path: Path, encoding: str) -> None:
    for block in (None, 101):
        assert read(tmp_path / "a.txt", KOREAN.encode(encoding), "", block) == KOREAN


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_detected(tmp_path: Path, encoding: str) -> None:
    data = OTHERS[encoding].encode(encoding)
    for block in (None, 101):
        assert read(tmp_path / "a.txt", b"Plain text first.\n" * 9 + data, "", block).endswith(OTHERS[encoding])
    for block in range(160, 167):  # a block ends inside the first character
        assert file_encoding(tmp_path / "a.txt", block) == file_encoding(tmp_path / "a.txt")
    assert read(tmp_path / "a.txt", data, text_encoding(encoding), 7) == OTHERS[encoding]
    with pytest.raises(DataError, match=r"is not UTF-8: byte 0x.. in line 1.* If it is \S+: iconv -f") as raised:
        read(tmp_path / "a.txt", data, None)
    assert data.decode(str(raised.value).partition("iconv -f ")[2].split()[0]) == OTHERS[encoding]


def test_words_beyond_ascii_are_read_as_western_unless_they_are_not(tmp_path: Path) -> None:
    for text in ("It cost £5 – “too much”.", "un café", "Müller wohnt in Köln"):
        assert read(tmp_path / "a.txt", text.encode("cp1252")) == text
    assert read(tmp_path / "a.txt", "Welcome. 오늘".encode("cp949")) == "Welcome. 오늘"


def test_a_stray_byte_in_utf8_is_named_not_detected_away(tmp_path: Path) -> None:
    data = KOREAN.encode() + b"\xff" + KOREAN.encode()
    with pytest.raises(
        DataError, match=r"is not UTF-8: byte 0xff in line 3; expected UTF-8 text. Repair that line"
    ):
        read(tmp_path / "a.txt", data)


def test_bytes_without_an_encoding_are_undecided(tmp_path: Path) -> None:
    noise = bytes((7 * number * number + 129 * number) % 256 for number in range(4000)).replace(b"\0", b"")
    with pytest.raises(DataError, match=r"the encoding of .*a\.txt cannot be decided\. Name it"):
        read(tmp_path / "a.txt", noise)


def test_the_text_before_the_end_of_a_cut_file_is_read(tmp_path: Path) -> None:
    lines = "".join(f"line {number} of {number**9}\n" for number in range(200_000))
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(lines.encode())[:1_000_000])
    received: list[str] = []
    with pytest.raises(DataError, match="ends early"):
        received.extend(text_blocks(path, encoding=""))  # a list has what came before an error
    assert len("".join(received)) > 2_000_000
    assert lines.startswith("".join(received))


def test_a_bomb_is_not_unpacked_whole_to_detect_its_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileLimits, "UNPACKED_CHARACTERS", 1 << 20)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a" * (100 << 20)))
    unpacked: list[int] = []
    blocks = CompressedFile.blocks

    def counted(file: CompressedFile) -> Iterator[bytes]:
        for block in blocks(file):
            unpacked.append(len(block))
            yield block

    monkeypatch.setattr(CompressedFile, "blocks", counted)
    with pytest.raises(DataError, match="unpacks to a text of more than"):
        list(split_text(path, "\n", ""))
    assert sum(unpacked) < 50 << 20


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    data = codecs.BOM_UTF16_LE + KOREAN.encode("utf-16-le")
    assert read(tmp_path / "a.txt", data, text_encoding("UTF-16LE")) == KOREAN
    assert read(tmp_path / "a.txt", "plain\n".encode("utf-16-le")) == "plain\n"


def test_a_wrong_name_is_an_error_that_names_line_and_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not in the encoding cp949: byte 0xff in line 3\. Repair"):
        read(tmp_path / "a.txt", KOREAN.encode("cp949") + b"\xff\xff", text_encoding("euc-kr"))
    with pytest.raises(UsageError, match=r"no encoding 'latin-99'\. Did you mean 'latin-1'"):
        text_encoding("latin-99")
    for name in ("rot13", "", "a\x00b", "undefined"):
        with pytest.raises(UsageError, match="no encoding"):
            text_encoding(name)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.json"])
def test_tables_have_encodings_too(tmp_path: Path, name: str) -> None:
    mark = {".csv": ",", ".tsv": "\t"}.get(Path(name).suffix)
    table = f"글{mark}라벨\n{KOREAN.splitlines()[0]}{mark}긍정\n" if mark else '{"글": "강물", "라벨": "긍정"}\n'
    path = tmp_path / name
    path.write_bytes(table.encode("utf-16"))
    assert next(open_table(path, encoding="").rows)[1]["라벨"] == "긍정"
    path.write_bytes(table.encode("cp949"))
    assert next(open_table(path, encoding="cp949").rows)[1]["라벨"] == "긍정"


def test_one_nul_byte_does_not_make_a_file_binary(tmp_path: Path) -> None:
    text = "name,한국어\ngood,1\nba\0d,2\n"
    for block_bytes in (1 << 16, 41):
        with pytest.raises(DataError, match=r"a.csv has a NUL byte in line 3; expected text. Remove it.*tr -d"):
            read(tmp_path / "a.csv", (text * 3).encode(), None, block_bytes)
