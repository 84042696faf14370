"""Tokenizer libraries as functions for benchmarks/tokenizer.py: encoders and trainers by name."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Encode = Callable[[list[str]], tuple[Any, Any]]


def arrays(lists: list[list[int]]) -> tuple[Any, Any]:
    """Lists of ids as one array and offsets, as fast as plain Python and NumPy can."""
    import numpy as np

    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    return np.concatenate([np.array(ids, np.uint32) for ids in lists]), offsets


def headwater_encoder(options: argparse.Namespace) -> Encode:
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    tokenizer.encode_array([" ".join(map(str, range(500_000)))])  # enough text for the engine to be chosen
    return tokenizer.encode_array


def library_json() -> str:
    from headwater.tokenizer import Tokenizer, tokenizer_json

    return tokenizer_json(Tokenizer.load("gpt2").vocabulary, specials=False)


def gigatoken_encoder(options: argparse.Namespace) -> Encode:
    import gigatoken
    import numpy as np
    from gigatoken.gigatoken_rs import load_hf_json

    tokenizer = gigatoken.Tokenizer(load_hf_json(library_json()))

    def encode(texts: list[str]) -> tuple[Any, Any]:
        if len(texts) == 1:
            ids = tokenizer.encode(texts[0])
            return ids, np.array([0, len(ids)])
        layout = tokenizer.encode_batch(texts).layout
        return layout.content.data, layout.offsets.data

    return encode


def fastokens_encoder(options: argparse.Namespace) -> Encode:
    import fastokens

    tokenizer = fastokens.Tokenizer.from_json_str(library_json())
    return lambda texts: arrays([encoding.ids for encoding in tokenizer.encode_batch(texts)])


def tokie_encoder(options: argparse.Namespace) -> Encode:
    import tokie

    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(library_json())
        file.flush()
        tokenizer = tokie.Tokenizer.from_json(file.name)
    return lambda texts: arrays([e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)])


def tokenizers_encoder(options: argparse.Namespace) -> Encode:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(library_json())
    return lambda texts: arrays([e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)])


def tiktoken_encoder(options: argparse.Namespace) -> Encode:
    import numpy as np
    import tiktoken

    from headwater.tokenizer import PATTERN, Tokenizer

    ranks = Tokenizer.load("gpt2").ranks()
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    def encode(texts: list[str]) -> tuple[Any, Any]:
        if len(texts) == 1:
            ids = encoding.encode_to_numpy(texts[0], disallowed_special=())
            return ids, np.array([0, len(ids)])
        return arrays(encoding.encode_ordinary_batch(texts, num_threads=options.threads))

    return encode


def headwater_gpt1(options: argparse.Namespace) -> Encode:
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt1")
    tokenizer.encode("load")
    return tokenizer.encode_array


def original_gpt1(options: argparse.Namespace) -> Encode:
    """The authors' pipeline: ftfy, spaCy over a text, byte pairs in Python with remembered words."""
    import spacy

    from headwater.tokenizer import NEWLINE, WORD_END, Tokenizer, merge_word, split_gpt1

    vocabulary = Tokenizer.load("gpt1").vocabulary
    ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
    english = spacy.blank("en").tokenizer
    remembered: dict[str, list[int]] = {}

    def word_ids(word: str) -> list[int]:
        pieces = merge_word([*word[:-1], word[-1] + WORD_END], ranks)
        if "".join(pieces) == "\n " + WORD_END:
            pieces = [NEWLINE]
        return [vocabulary.ids.get(piece, 0) for piece in pieces]

    def encode(texts: list[str]) -> tuple[Any, Any]:
        lists = []
        for text in texts:
            ids: list[int] = []
            # spaCy takes texts of up to a million characters.
            for part in paragraphs(text, 500_000):
                for word in split_gpt1(part, english):
                    if word not in remembered:
                        remembered[word] = word_ids(word)
                    ids += remembered[word]
                ids += word_ids("\n ")
            lists.append(ids[:-1])
        return arrays(lists)

    return encode


def paragraphs(text: str, size: int) -> list[str]:
    """The text in parts of about `size` characters, cut at a visible line's end."""
    parts, start = [], 0
    while len(text) - start > size:
        end = text.find("\n", start + size)
        if end < 0:
            break
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


Train = Callable[[Path], Any]


def lines(path: Path) -> Any:
    """The file's text in pieces of about a megabyte, for trainers that take an iterator."""
    with path.open(encoding="utf-8", newline="") as handle:
        yield from iter(lambda: "".join(handle.readlines(1 << 20)), "")


def headwater_trainer(options: argparse.Namespace) -> Train:
    from headwater.tokenizer import learn_vocabulary

    return lambda path: learn_vocabulary(path, "gpt2", options.vocab_size)


def gigatoken_trainer(options: argparse.Namespace) -> Train:
    import gigatoken

    return lambda path: gigatoken.train_bpe(path, options.vocab_size, ["<|endoftext|>"])


def rustbpe_trainer(options: argparse.Namespace) -> Train:
    import rustbpe

    from headwater.tokenizer import PATTERN

    trainer = rustbpe.Tokenizer()
    return lambda path: trainer.train_from_iterator(lines(path), options.vocab_size - 1, pattern=PATTERN)


def sentencepiece_trainer(options: argparse.Namespace) -> Train:
    import sentencepiece

    folder = tempfile.mkdtemp()
    return lambda path: sentencepiece.SentencePieceTrainer.train(
        input=str(path),
        model_prefix=f"{folder}/model",
        model_type="bpe",
        vocab_size=options.vocab_size,
        byte_fallback=True,
        num_threads=options.threads,
        minloglevel=2,
    )


def bpeasy_trainer(options: argparse.Namespace) -> Train:
    import bpeasy

    from headwater.tokenizer import PATTERN

    return lambda path: bpeasy.train_bpe(lines(path), PATTERN, 1000, options.vocab_size - 1)


def tokenizers_trainer(options: argparse.Namespace) -> Train:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    return lambda path: tokenizer.train([str(path)], trainer)


ENCODE: dict[str, Callable[[argparse.Namespace], Encode]] = {
    "headwater": headwater_encoder,
    "gigatoken": gigatoken_encoder,
    "fastokens": fastokens_encoder,
    "tokie": tokie_encoder,
    "tokenizers": tokenizers_encoder,
    "tiktoken": tiktoken_encoder,
}


GPT1 = {"headwater": headwater_gpt1, "original": original_gpt1}


TRAIN: dict[str, Callable[[argparse.Namespace], Train]] = {
    "headwater": headwater_trainer,
    "gigatoken": gigatoken_trainer,
    "rustbpe": rustbpe_trainer,
    "sentencepiece": sentencepiece_trainer,
    "bpeasy": bpeasy_trainer,
    "tokenizers": tokenizers_trainer,
}
