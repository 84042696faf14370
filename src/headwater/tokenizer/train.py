"""Learn a vocabulary of either kind, and the stage that writes it as a folder.

Words are counted first, then merges are learned from the counts. Ids follow the originals' layout. Kind gpt2: the
256 bytes, the merges in order, the special tokens (`<|endoftext|>` first).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.errors import UsageError
from headwater.progress import SILENT, Progress
from headwater.provenance import Stage
from headwater.tokenizer.counting import Sources, count_byte_words, list_sources, read_blocks
from headwater.tokenizer.files import write_files
from headwater.tokenizer.merges import learn_merges
from headwater.tokenizer.tokenizer import Tokenizer
from headwater.tokenizer.vocabulary import BYTE_CHARACTERS, BYTE_ORDER, END_OF_TEXT, Kind, Vocabulary


def train_tokenizer(
    sources: Sequence[Path],
    out: Path,
    *,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Tokenizer:
    """Learn a vocabulary from `sources` and write it as the tokenizer folder `out`; returns it.

    A folder that is already there, made from the same text with the same settings, is opened as it is. Raises
    UsageError when `vocab_size` is too small for the alphabet, DataError for text that cannot be read.
    """
    list_sources(sources)  # a path that does not exist is named before anything else happens
    names = ["source"] if len(sources) == 1 else [f"source {number + 1}" for number in range(len(sources))]
    config = {"kind": kind, "vocab_size": vocab_size, "special_tokens": list(special_tokens)}
    stage = Stage(out, kind="tokenizer", config=config, inputs=dict(zip(names, map(Path, sources), strict=True)))
    if stage.is_complete():
        progress.note(f"{out} is already there, complete")
        return Tokenizer.load(out)
    with stage.write() as work:
        vocabulary = learn_vocabulary(sources, kind, vocab_size, special_tokens, progress=progress)
        write_files(vocabulary, work)
    return Tokenizer(vocabulary)


def learn_vocabulary(
    sources: Sources,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    *,
    progress: Progress = SILENT,
) -> Vocabulary:
    """The vocabulary that the text of `sources` gives; see `Tokenizer.train`."""
    if kind != "gpt2":
        raise UsageError(f"{kind!r} is no kind of tokenizer", expected="gpt2 or gpt1")
    specials = list(dict.fromkeys([END_OF_TEXT, *special_tokens]))
    room = vocab_size - len(BYTE_ORDER) - len(specials)
    if room < 0:
        raise UsageError(
            f"a vocabulary of {vocab_size} cannot hold 256 bytes and {len(specials)} special tokens",
            expected=f"at least {256 + len(specials)}",
        )
    progress.start("count words", unit="bytes")
    counted = count_byte_words(read_blocks(sources, specials), progress)
    progress.finish(f"{len(counted):,} distinct words")
    id_of_byte = {byte: index for index, byte in enumerate(BYTE_ORDER)}
    words = {tuple(id_of_byte[byte] for byte in word): count for word, count in counted.items()}
    progress.start("learn merges", total=room, unit="tokens")
    merges = learn_merges(words, len(BYTE_ORDER), room, progress)
    tokens = [BYTE_CHARACTERS[byte] for byte in BYTE_ORDER]
    pairs = []
    for left, right, merged in merges:
        if merged == len(tokens):
            tokens.append(tokens[left] + tokens[right])
        pairs.append((tokens[left], tokens[right]))
    progress.finish(f"{len(tokens) + len(specials):,} tokens")
    if len(tokens) + len(specials) < vocab_size:
        progress.note(
            f"The text gives only {len(tokens) + len(specials):,} tokens: all its words are whole tokens"
        )
    return Vocabulary("gpt2", tuple(tokens), tuple(pairs), {}).with_specials(specials)
