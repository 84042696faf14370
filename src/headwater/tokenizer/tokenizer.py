"""`Tokenizer`: one class for all kinds; and `train_tokenizer`, the stage that writes a tokenizer folder.

The class handles special tokens, names and folders; a codec (`gpt1`, or `codec` for the other kinds) encodes and
decodes text. Special tokens in a text are plain text unless the caller allows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.display import counted
from headwater.errors import DataError, MismatchError, UsageError
from headwater.reading import expand_home, is_table
from headwater.storage import (
    INTERACTIVE,
    Progress,
    Stage,
    find_resource,
    has_manifest,
    open_folder,
    read_manifest,
    storage_errors,
    user_files,
)
from headwater.tokenizer.bpe_training import learn_vocabulary
from headwater.tokenizer.bpe_words import TEXT_SUFFIXES, Sources, known_bytes, source_files
from headwater.tokenizer.codec import ByteLevelCodec, LibraryCodec
from headwater.tokenizer.folder import (
    BERT_ROLES,
    Roles,
    TokenizerFiles,
    default_roles,
    holds_tokenizer,
    read_folder,
    read_pair,
    read_roles,
    write_files,
)
from headwater.tokenizer.gpt1 import WordCodec
from headwater.tokenizer.vocabulary import (
    CLASSIFY,
    END_OF_TEXT,
    MASK,
    SEPARATOR,
    TASK_TOKENS,
    UNKNOWN,
    UNKNOWN_WORD,
    Kind,
    TaskTokens,
    Vocabulary,
    token_dtype,
)

_ORIGINALS = {
    "gpt2": ("gpt2/encoder.json", "gpt2/vocab.bpe"),
    "gpt1": ("gpt1/encoder_bpe_40000.json", "gpt1/vocab_40000.bpe"),
}
_ROUNDINGS = [1 << power for power in range(11)]


class Tokenizer:
    """Text to token ids and back, with the ids of the original GPT-1, GPT-2 or BERT code for its vocabulary."""

    def __init__(self, vocabulary: Vocabulary, roles: Roles | None = None) -> None:
        """`roles`: which tokens begin, end and pad a text; by default `<|endoftext|>` begins and ends it."""
        self.vocabulary = vocabulary
        self.roles = default_roles(vocabulary.specials) if roles is None else roles
        codecs: dict[Kind, type[WordCodec | LibraryCodec]] = {
            "gpt1": WordCodec,
            "gpt2": ByteLevelCodec,
            "foreign": LibraryCodec,
        }
        self._codec = codecs[vocabulary.kind](vocabulary)

    @classmethod
    def load(cls, name_or_folder: str | Path, *, download: bool = False) -> Tokenizer:
        """Return the original "gpt2" or "gpt1", or the tokenizer in a folder, of a shipped model or of a hub name.

        Raises ResourceError if an original or a hub name is not available locally (`download` fetches it),
        FolderError or DataError for a folder without a tokenizer, or with a damaged one, UsageError if the name of
        an original is also the name of a folder with another tokenizer.
        """
        name_or_folder = expand_home(name_or_folder)
        if isinstance(name_or_folder, str) and name_or_folder in _ORIGINALS:
            vocabulary, merges = (
                find_resource(name, allow_network=download) for name in _ORIGINALS[name_or_folder]
            )
            original = read_pair(vocabulary, merges)
            here = Path(name_or_folder)
            if holds_tokenizer(here) and read_folder(TokenizerFiles(here)).identity != original.identity:
                raise UsageError(
                    f"{here} is the original tokenizer, and the folder ./{here} has another one",
                    repair=f"Write ./{here} for the folder, or rename it for the original",
                )
            return cls(original)
        folder = shipped.find(name_or_folder, download=download)
        if has_manifest(folder) and read_manifest(folder).kind == "tokenizer":
            open_folder(folder, "tokenizer")
        files = TokenizerFiles(folder)
        own = read_folder(files)
        return cls(own, read_roles(files, own.specials, len(own.tokens)))

    @staticmethod
    def inputs_of(name_or_folder: str | Path) -> dict[str, Path]:
        """Return the folder that `load` reads as the input of a stage; empty for an original."""
        return {} if name_or_folder in _ORIGINALS else {"tokenizer": shipped.find(name_or_folder)}

    @classmethod
    def of_model(
        cls, folder: Path, rows: int, named: str | Path | None = None, *, download: bool = False
    ) -> Tokenizer | None:
        """Return the tokenizer in a model folder, else the `named` one, as for `load`, else None.

        rows: of the model's token embedding. Raises MismatchError for a named tokenizer that differs from the
        folder's, or whose size is not the model's.
        """
        if shipped.model_file(folder.parent) == folder:  # nanoGPT's tokenizer is next to it
            folder = folder.parent
        own = cls.load(folder) if holds_tokenizer(folder) else None
        if named is None:
            return own
        tokenizer = cls.load(named, download=download)
        if own is not None and own.identity != tokenizer.identity:
            raise MismatchError(
                f"the tokenizer in {named} is not the one in {folder}, which the model was trained with",
                repair="Leave --tokenizer out",
            )
        size = tokenizer.vocabulary_size
        # A model's rows are often rounded up to a multiple of a power of two.
        if all(-(-size // step) * step != rows for step in _ROUNDINGS):
            raise MismatchError(
                f"the tokenizer in {named} has {size:,} tokens, and the model in {folder} {rows:,} rows",
                expected="the tokenizer that the model was trained with",
            )
        return tokenizer

    @classmethod
    def train(
        cls,
        files_or_texts: Sources,
        kind: Kind = "gpt2",
        vocab_size: int = 32_000,
        special_tokens: Sequence[str] = (),
        progress: Progress = INTERACTIVE,
    ) -> Tokenizer:
        """Learn a vocabulary from text; the order of texts does not matter.

        A `Path` is a corpus folder, a text file or a folder of text files; a `str` is a text. Raises UsageError if
        `vocab_size`, special tokens included, is too small for the alphabet.
        """
        return cls(learn_vocabulary(files_or_texts, kind, vocab_size, special_tokens, progress=progress))

    def ranks(self) -> dict[bytes, int]:
        """Return tiktoken's ranks, the id of each ordinary token's bytes; only for kind gpt2.

        `tiktoken.Encoding("mine", pat_str=PATTERN, mergeable_ranks=tokenizer.ranks(),
        special_tokens=tokenizer.special_tokens)` gives the same ids.
        """
        if self.kind != "gpt2":
            raise UsageError(f"a tokenizer of kind {self.kind} has no byte ranks", expected="kind gpt2")
        return {self.token_bytes(i): i for i in self.vocabulary.plain_ids.values()}

    @property
    def kind(self) -> Kind:
        """The kind of encoding."""
        return self.vocabulary.kind

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, including special tokens."""
        return len(self.vocabulary.tokens)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Ids by special token."""
        return dict(self.vocabulary.specials)

    @property
    def end_of_text(self) -> int | None:
        """Id of the token that ends a text, the first of `roles.ends`; None without one, as GPT-1's."""
        return self.roles.ends[0] if self.roles.ends else None

    @property
    def start_of_text(self) -> int | None:
        """Id of the token before a text: its own, else that of the end of a text before it."""
        return self.end_of_text if self.roles.start is None else self.roles.start

    @cached_property
    def text_tokens(self) -> frozenset[str]:
        """The special tokens that belong to a text, such as the name of a speaker: all without a role."""
        roles = self.roles
        numbers = {roles.start, roles.padding, *roles.ends}
        control = {*TASK_TOKENS, END_OF_TEXT, *(name for _, name in roles.names)}
        control |= set(BERT_ROLES.values()) if self.kind == "foreign" else {MASK}
        special = (token.content for token in self.vocabulary.added if token.special)
        return frozenset(n for n in special if n not in control and self.vocabulary.specials[n] not in numbers)

    @property
    def task_tokens(self) -> TaskTokens:
        """Ids of start, delimiter and extract token; raises MismatchError before `with_task_tokens`."""
        # BERT's inputs are [CLS] a [SEP] b [SEP]: these have the role of GPT-1's three tokens.
        names = (CLASSIFY, SEPARATOR, SEPARATOR) if self.kind == "foreign" and any(self.frame) else TASK_TOKENS
        try:
            return TaskTokens(*(self.vocabulary.specials[name] for name in names))
        except KeyError:
            raise MismatchError(
                "the tokenizer has no start, delimiter and extract tokens",
                expected="the tokenizer of a fine-tuned model, or tokenizer.with_task_tokens()",
            ) from None

    @property
    def mask(self) -> int | None:
        """Id of the token that a masked model fills, `[MASK]` or the folder's own; None without one."""
        return self.vocabulary.specials.get(dict(self.roles.names).get("mask_token", MASK))

    @property
    def unknown(self) -> int | None:
        """Id of the token for text that the vocabulary does not have; None with kind gpt2, which has all bytes."""
        if self.kind == "gpt2":
            return None
        ids, named = self.vocabulary.ids, dict(self.roles.names).get("unk_token", "")
        token = next((ids[name] for name in (named, UNKNOWN, UNKNOWN_WORD) if name in ids), None)
        return None if token in {self.roles.start, self.roles.padding, *self.roles.ends} else token

    def note_of_unknown(self, streams: Iterable[npt.ArrayLike]) -> str:
        """Return a sentence with the number of unknown tokens in all arrays of ids; "" if there are none."""
        if (unknown := self.unknown) is None:
            return ""
        sizes = [(np.count_nonzero(np.asarray(ids) == unknown), np.size(ids)) for ids in streams]
        count, total = (sum(size) for size in zip(*sizes, strict=True)) if sizes else (0, 0)
        name = self.vocabulary.tokens[unknown]
        return f"Text without a token of its own: {name} is {count:,} of {total:,} tokens" if count else ""

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """Ids before and after a text that a masked model reads: `[CLS]` and `[SEP]` with BERT's vocabulary."""
        specials = self.vocabulary.specials
        if CLASSIFY not in specials or SEPARATOR not in specials:
            return [], []
        return [specials[CLASSIFY]], [specials[SEPARATOR]]

    @property
    def identity(self) -> str:
        """Hash of everything that decides an id: equal for equal tokenizers in any folder."""
        return self.vocabulary.identity

    def require_rows(self, rows: int) -> None:
        """Raise MismatchError if a model with so many vocabulary rows lacks a row for an id."""
        if self.vocabulary_size > rows:
            raise MismatchError(
                f"the tokenizer has {self.vocabulary_size:,} ids and the model {rows:,} rows",
                expected="a row for every id, as in the tokenizer that the model was trained with",
            )

    def with_task_tokens(self) -> Tokenizer:
        """Return the tokenizer with fine-tuning's `_start_`, `_delimiter_`, `_classify_` as its last three rows.

        Ids 40,478 to 40,480 for the original GPT-1, 50,257 to 50,259 for GPT-2. A tokenizer that has them, or
        BERT's `[CLS]` and `[SEP]`, is returned unchanged.
        """
        present = all(name in self.vocabulary.specials for name in TASK_TOKENS)
        if present or (self.kind == "foreign" and any(self.frame)):
            return self
        return Tokenizer(self.vocabulary.with_specials(TASK_TOKENS), self.roles)

    def with_mask(self) -> Tokenizer:
        """Return the tokenizer with `[MASK]` as its last row; one that has it is returned unchanged."""
        return self if self.mask is not None else Tokenizer(self.vocabulary.with_specials([MASK]), self.roles)

    def encode(self, text: str, allow_special: bool | None = False) -> list[int]:
        """Return the ids of a text; a token that was added as an ordinary one is always one token.

        allow_special: whether special tokens in the text are encoded as such, or as plain text; None: only those
        that belong to texts (`text_tokens`). A lone surrogate raises DataError for kind gpt2; for gpt1 ftfy's
        repair replaces it.
        """
        return self.encode_batch([text], allow_special)[0]

    def encode_batch(self, texts: Sequence[str], allow_special: bool | None = False) -> list[list[int]]:
        """Return the ids of each text, as `encode`."""
        return self._codec.encode_batch(_as_texts(texts), self._allowed(allow_special))

    def encode_array(
        self, texts: Sequence[str], allow_special: bool | None = False
    ) -> tuple[npt.NDArray[np.uint16] | npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets, int64: fast for much text.

        The ids are uint16, or uint32 if the vocabulary has more than 65,536 rows. `allow_special`: see `encode`.
        """
        ids, offsets = self._codec.encode_array(_as_texts(texts), self._allowed(allow_special))
        return (ids if token_dtype(self.vocabulary_size) is np.uint32 else ids.astype(np.uint16)), offsets

    def _allowed(self, allow_special: bool | None) -> frozenset[str]:
        if allow_special is None:
            return self.text_tokens
        return frozenset(self.vocabulary.specials) if allow_special else frozenset()

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids: exact for kind gpt2, except that invalid UTF-8 becomes U+FFFD.

        The other kinds return readable text: encoding loses case and spacing.
        """
        return self._codec.decode([self._checked(i) for i in ids])

    def token_bytes(self, token: int) -> bytes:
        """Return a token's bytes: exact for kind gpt2, UTF-8 and a space after a word for gpt1."""
        return self._codec.token_bytes[self._checked(token)]

    def token_text(self, token: int) -> str:
        """Return a token's text; invalid UTF-8 becomes U+FFFD."""
        return self.token_bytes(token).decode("utf-8", errors="replace")

    def save(self, folder: str | Path, *, context: int | None = None) -> None:
        """Write the Hugging Face files into a folder, made if it is missing; `context`: of its model."""
        folder = Path(expand_home(folder))
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_files(self.vocabulary, folder, self.roles, context=context)

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.vocabulary_size:
            raise UsageError(f"{token} is not a token id", expected=f"0 to {self.vocabulary_size - 1}")
        return index(token)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.vocabulary, self.roles)

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocabulary_size={self.vocabulary_size:,})"


def train_tokenizer(
    sources: Sequence[Path],
    out: Path,
    *,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    progress: Progress = INTERACTIVE,
) -> Tokenizer:
    """Learn a vocabulary from `sources` and write it as the tokenizer folder `out`; return it.

    An existing folder, made from the same text with the same settings, is opened. Raises UsageError if
    `vocab_size` is too small for the alphabet, DataError for text that is empty or cannot be read.
    """
    paths = [Path(source) for source in sources]
    files = {path: source_files(path) for path in paths if not has_manifest(path)}
    names = ["source"] if len(paths) == 1 else [f"source {number}" for number in range(1, len(paths) + 1)]
    config = {"kind": kind, "vocab_size": vocab_size, "special_tokens": list(special_tokens)}
    inputs = dict(zip(names, paths, strict=True))
    stage = Stage(out, kind="tokenizer", config=config, inputs=inputs, suffixes=sorted(TEXT_SUFFIXES))
    if stage.is_complete(progress):
        return Tokenizer.load(out)
    if known_bytes(paths) == 0:
        raise DataError(f"{', '.join(map(str, paths))}: the text is empty", repair="Name a source with text")
    tables = [str(path) for path in paths if is_table(path) and path.suffix != ".parquet"]
    if tables:
        progress.note(
            f"{', '.join(tables)}: read as plain text, with the commas, quotes and escapes between the texts. To "
            "learn from the texts alone, make a corpus first: headwater corpus build"
        )
    for path in filter(Path.is_dir, files):
        if skipped := sum(map(len, user_files(path))) - len(files[path]):
            progress.note(f"{path}: skipped {counted(skipped, 'item')} other than plain-text files")
    with stage.write() as work:
        tokenizer = Tokenizer.train(paths, kind, vocab_size, special_tokens, progress)
        tokenizer.save(work)
    return tokenizer


def _as_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise UsageError("a single text was given", expected="a list of texts", repair="Use encode, or [text]")
    return list(texts)
