"""Where training text comes from, and how often each word of it occurs.

A source is a corpus folder, a UTF-8 text file, a folder of text files, or texts in memory. Text is read in blocks that
end where the pre-split has a border, so that memory follows the number of distinct words, not the size of the text.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headwater.errors import DataError
from headwater.progress import SILENT, Progress
from headwater.provenance import MANIFEST
from headwater.tokenizer.gpt2 import check_unicode

BLOCK_BYTES = 1 << 23
_TEXT_SUFFIXES = {".txt", ".text", ".md", ".tokens", ".csv", ".tsv", ".json", ".jsonl", ".raw"}
# The last place of a block where both kinds of pre-split have a border: between a visible character and a space.
_LAST_BORDER = re.compile(r".*\S(?=[ \n])", re.DOTALL)

Sources = str | Path | Iterable[str | Path]


def list_sources(sources: Sources) -> list[Path | str]:
    """Each source as a path that exists or as a text.

    A string is a path when it names something that exists. Raises DataError for what looks like a path and is none.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    found: list[Path | str] = []
    for source in given:
        if isinstance(source, str) and (len(source) > 1000 or "\n" in source):
            found.append(source)
            continue
        path = Path(source)
        exists = bool(str(source)) and path.exists()
        if exists:
            found.append(path)
        elif isinstance(source, Path) or path.suffix in _TEXT_SUFFIXES and not re.search(r"\s", source):
            raise DataError(f"{path} does not exist", expected="a corpus, a text file or a folder of text files")
        else:
            found.append(source)
    return found


def source_files(path: Path) -> list[Path]:
    """The text files of a source that is no corpus: the file itself, or those of the folder in order of name."""
    if path.is_file():
        return [path]
    files = sorted(p for p in path.rglob("*") if p.suffix in _TEXT_SUFFIXES and p.is_file())
    if not files:
        raise DataError(
            f"{path} holds no text file", expected=f"files ending in {', '.join(sorted(_TEXT_SUFFIXES))}"
        )
    return files


def read_blocks(sources: Sources, separators: Sequence[str] = ()) -> Iterator[str]:
    """All text of the sources in blocks of about 8 MiB; `separators` are left out and end a block's words.

    Raises DataError naming the file and line of bytes that are no UTF-8.
    """
    split = re.compile("|".join(map(re.escape, separators))) if separators else None
    for block in _blocks(sources):
        if split is None:
            yield block
        else:
            yield from (piece for piece in split.split(block) if piece)


def _blocks(sources: Sources) -> Iterator[str]:
    for source in list_sources(sources):
        if isinstance(source, str):
            check_unicode([source])
            yield source
        elif (source / MANIFEST).is_file():
            from headwater.corpus.folder import read_documents

            yield from (document.text for document in read_documents(source))
        else:
            for path in source_files(source):
                yield from _file_blocks(path)


def _file_blocks(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest, line = "", 1
    with path.open("rb") as handle:
        while True:
            data = handle.read(BLOCK_BYTES)
            if b"\x00" in data:
                raise DataError(f"{path} is a binary file", expected="UTF-8 text")
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                raise DataError(
                    f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}",
                    expected="UTF-8 text",
                    repair=f"Convert it, as with: iconv -f latin1 -t utf-8 {path} > converted.txt",
                ) from None
            line += text.count("\n")
            rest += text
            if not data:
                break
            border = _LAST_BORDER.match(rest)
            if border is not None:
                yield rest[: border.end()].removeprefix("\ufeff")
                rest = rest[border.end() :]
    if rest:
        yield rest.removeprefix("\ufeff")


def count_byte_words(blocks: Iterable[str], progress: Progress = SILENT) -> Counter[bytes]:
    """How often each piece of GPT-2's pre-split occurs, as UTF-8 bytes."""
    from tokenizers import pre_tokenizers

    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    counted: Counter[str] = Counter()
    done = 0
    for block in blocks:
        for line in block.split("\0"):
            counted.update(piece for piece, _ in splitter.pre_tokenize_str(line))
        done += len(block.encode())
        progress.advance(done)
    from headwater.tokenizer.vocabulary import characters_to_bytes

    return Counter({characters_to_bytes(piece): count for piece, count in counted.items()})
