"""Read training text and count its words.

A source is a `Path` to a corpus folder, a text file or a folder of text files, or a `str`, which is a text. Files
may be compressed. Text is read in blocks that end at a border of the pre-split, so that memory grows with the
number of distinct words, not with the text. `bpe_merges` learns from the counts.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headwater.device import available_cores
from headwater.errors import DataError, UsageError
from headwater.reading import compose, is_compressed, text_blocks, unpacked_suffix
from headwater.storage import SILENT, Progress, has_manifest, user_files
from headwater.tokenizer import bpe_merges
from headwater.tokenizer.bpe_merges import CompiledCounter, WordCounts
from headwater.tokenizer.gpt1 import REMEMBERED, WordSplitter
from headwater.tokenizer.vocabulary import BYTE_ORDER, as_unicode, characters_to_bytes

BLOCK_BYTES = 1 << 16
# Each thread has its own counts, so more threads take more memory.
_THREADS = 4
# No code point from here on is a letter, a number or a space.
_LAST_LETTER = 0x40000
_EXAMINED = 256  # code points in one text: the library's time grows with the square of a text's pieces
TEXT_SUFFIXES = {".txt", ".text", ".md", ".rst", ".tokens", ".raw"}
# The last border of a block in both kinds of pre-split: between a visible character and a space.
_LAST_BORDER = re.compile(r".*\S(?=[ \n])", re.DOTALL)

Sources = Path | Iterable[str | Path]


def known_bytes(sources: Sources) -> int | None:
    """Return how many bytes there are to read, or None if that is not known in advance."""
    if not isinstance(sources, Path | list | tuple):
        return None
    total = 0
    for source in _each(sources):
        if isinstance(source, str):
            total += len(source.encode("utf-8", "replace"))
        elif has_manifest(source) or any(map(is_compressed, source_files(source))):
            return None
        else:
            total += sum(file.stat().st_size for file in source_files(source))
    return total


def _each(sources: Sources) -> Iterable[str | Path]:
    if isinstance(sources, str):
        raise UsageError(
            "the sources are a single str", expected="a Path to text, or texts", repair="Use Path(…), or [text]"
        )
    return [sources] if isinstance(sources, Path) else sources


def source_files(path: Path) -> list[Path]:
    """Return the text files of a source that is not a corpus: itself, or those of the folder by name."""
    if not path.exists():
        raise DataError(f"{path} does not exist", expected="a corpus, a text file or a folder of text files")
    if not path.is_dir():
        return [path]
    files = [file for file in user_files(path)[0] if unpacked_suffix(file) in TEXT_SUFFIXES]
    if not files:
        raise DataError(f"{path} has no text file", expected=f"files ending in {', '.join(sorted(TEXT_SUFFIXES))}")
    return files


def read_blocks(sources: Sources, separators: Sequence[str] = ()) -> Iterator[str]:
    """Yield the sources' text in blocks of about 64 KiB, split at `separators`.

    The text of files is brought into Unicode's composed form, as in a corpus. Raises DataError naming the file and
    line of text that cannot be decoded.
    """
    split = re.compile("|".join(map(re.escape, separators))) if separators else None
    for block in _blocks(sources):
        yield from [block] if split is None else filter(None, split.split(block))


def _blocks(sources: Sources) -> Iterator[str]:
    for source in _each(sources):
        if isinstance(source, str):
            yield from as_unicode([source])
        elif has_manifest(source):
            from headwater.corpus import read_documents

            yield from (document.text for document in read_documents(source))
        else:
            for path in source_files(source):
                yield from _file_blocks(path)


def _file_blocks(path: Path) -> Iterator[str]:
    """Yield the text of a file in the form that a corpus has: see `headwater corpus build`."""
    try:
        yield from map(compose, _decoded_blocks(path))
    except DataError as error:
        before, named, option = error.repair.partition("--encoding ")
        if not named:
            raise
        repair = f"{before}headwater corpus build {shlex.quote(str(path))} {named}{option} --out DIR"
        raise DataError(error.seen, expected=error.expected, repair=repair) from None


def _decoded_blocks(path: Path) -> Iterator[str]:
    rest = ""
    for text in text_blocks(path, BLOCK_BYTES, encoding=""):
        before = max(len(rest) - 1, 0)
        rest += text
        border = _LAST_BORDER.match(rest, before)
        if border is not None:
            yield rest[: border.end()]
            rest = rest[border.end() :]
    if rest:
        yield rest


def count_byte_words(texts: Iterable[str], progress: Progress = SILENT) -> WordCounts:
    """Count the pieces of GPT-2's pre-split, as the ids of their UTF-8 bytes.

    Progress advances by the bytes read.
    """
    order = np.empty(256, np.int32)
    order[list(BYTE_ORDER)] = np.arange(256)
    if bpe_merges.load() is None:
        return _count_with_library(texts, order, progress)
    categories = character_categories()
    threads = min(_THREADS, available_cores())
    counters: list[CompiledCounter] = []
    own = threading.local()

    def work(batch: list[bytes]) -> int:
        if not hasattr(own, "counter"):
            own.counter = CompiledCounter(categories)
            counters.append(own.counter)
        for text in batch:
            own.counter.add(text)
        return sum(map(len, batch))

    done = 0
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[int]] = deque()
        for batch in _batches(texts):
            running.append(pool.submit(work, batch))
            if len(running) > threads:
                done += running.popleft().result()
                progress.advance(done)
        for future in running:
            done += future.result()
            progress.advance(done)
    counters = counters or [CompiledCounter(categories)]
    while len(counters) > 1:
        counters[0].merge(counters.pop())
    return WordCounts(*counters[0].export(order))


def _batches(texts: Iterable[str]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for text in texts:
        batch.append(text.encode())
        size += len(batch[-1])
        if size >= BLOCK_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@cache
def character_categories() -> npt.NDArray[np.uint8]:
    """Return each code point's category: 0 for a sign, 1 for a letter, 2 for a number, 3 for a space.

    As the library that encodes has them: each version of Python knows the letters of another version of Unicode.
    """
    from tokenizers import Regex, pre_tokenizers

    kinds = np.zeros(_LAST_LETTER, np.uint8)
    for kind, pattern in enumerate((r"\p{L}+", r"\p{N}+", r"\s+"), start=1):
        splitter = pre_tokenizers.Split(Regex(pattern), "removed")
        for start in range(0, _LAST_LETTER, _EXAMINED):
            if start not in range(0xD800, 0xE000):
                present = np.ones(_EXAMINED, bool)
                text = "".join(map(chr, range(start, start + _EXAMINED)))
                for _, (first, end) in splitter.pre_tokenize_str(text):
                    present[first:end] = False
                kinds[start : start + _EXAMINED][present] = kind
    kinds.flags.writeable = False
    return kinds


def _count_with_library(texts: Iterable[str], order: npt.NDArray[np.int32], progress: Progress) -> WordCounts:
    from tokenizers import pre_tokenizers

    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    counted: Counter[str] = Counter()
    done = 0
    for text in texts:
        counted.update(piece for piece, _ in splitter.pre_tokenize_str(text))
        done += len(text.encode())
        progress.advance(done)
    ids = order.tolist()
    return WordCounts.of(
        ([ids[byte] for byte in characters_to_bytes(piece)], count) for piece, count in counted.items()
    )


def count_character_words(texts: Iterable[str], progress: Progress = SILENT) -> Counter[str]:
    """Count GPT-1's lower-case words, without newlines; progress advances by the bytes read."""
    splitter, counts, done = WordSplitter(), Counter[str](), 0
    split_chunk = lru_cache(maxsize=REMEMBERED)(splitter.split_chunk)
    for text in texts:
        for line in splitter.standard_lines(text):
            chunks = line.split()
            words = [split_chunk(chunk) for chunk in chunks]
            if None in words:
                counts.update(splitter.split_line(chunks))
            else:
                counts.update(chain.from_iterable(words))  # type: ignore[arg-type]
        done += len(text.encode("utf-8", "replace"))
        progress.advance(done)
    return counts
