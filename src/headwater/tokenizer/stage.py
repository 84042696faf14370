"""The stage that learns a vocabulary and writes it as a tokenizer folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.errors import DataError
from headwater.storage.progress import SILENT, Progress
from headwater.storage.stage import Stage
from headwater.storage.tables import TEXT_TABLES, unpacked_suffix
from headwater.tokenizer.counting import as_source, known_bytes
from headwater.tokenizer.files import write_files
from headwater.tokenizer.tokenizer import Tokenizer
from headwater.tokenizer.train import learn_vocabulary
from headwater.tokenizer.vocabulary import Kind


def train_tokenizer(
    sources: Sequence[Path],
    out: Path,
    *,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Tokenizer:
    """Learn a vocabulary from `sources` and write it as the tokenizer folder `out`; return it.

    An existing folder, made from the same text with the same settings, is opened. Raises UsageError if
    `vocab_size` is too small for the alphabet, DataError for text that is empty or cannot be read.
    """
    for source in map(Path, sources):
        as_source(source)  # raises for one that does not exist
    if known_bytes(list(sources)) == 0:
        raise DataError(f"{', '.join(map(str, sources))}: the text is empty", repair="Name a source with text")
    tables = [str(source) for source in sources if unpacked_suffix(Path(source)) in TEXT_TABLES]
    if tables:
        progress.note(
            f"{', '.join(tables)}: read as plain text, with the commas, quotes and escapes between the texts. To "
            "learn from the texts alone, make a corpus first: headwater corpus build"
        )
    names = ["source"] if len(sources) == 1 else [f"source {number + 1}" for number in range(len(sources))]
    config = {"kind": kind, "vocab_size": vocab_size, "special_tokens": list(special_tokens)}
    stage = Stage(out, kind="tokenizer", config=config, inputs=dict(zip(names, map(Path, sources), strict=True)))
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        return Tokenizer.load(out)
    with stage.write() as work:
        vocabulary = learn_vocabulary(
            list(map(Path, sources)), kind, vocab_size, special_tokens, progress=progress
        )
        write_files(vocabulary, work)
    return Tokenizer(vocabulary)
