"""Tokenizers that other programs wrote: ids and text are those of transformers' AutoTokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.convert import convert
from headwater.errors import DataError
from headwater.inference import load
from headwater.reading import read_object
from headwater.shipped import resolve
from headwater.storage import write_json
from headwater.tokenizer import PATTERN, Tokenizer, compare
from headwater.tokenizer.vocabulary import BYTE_CHARACTERS, AddedToken, assemble

LINES = [
    "The quick brown fox doesn't jump over 12 lazy dogs; isn't it?",
    "Rivers run to the sea, yet the sea is not full. 1984, 2.5 and 007.",
    "한국어 문장도 있습니다. 토큰은 글자로 나뉩니다, 안녕하세요 세계!",
    "我们在东京学习语言。 café naïve Déjà vu ÀÉÎ ﬁne ①② ½",
    "def f(x):\n    return x ** 2  # two\n\n\ttab",
] * 3
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<usr>"]


def hostile_texts(seed: int = 7) -> list[str]:
    """Return 230 texts with spaces, marks, controls, scripts and special tokens in unusual places."""
    parts = [
        *"aA é1한😀\t\n\r\u00a0\u200b\u3000\u0301ﬁ①Ａ़ع,.'_▁Ġ#\x00\x7f\ufeff\ufffd",
        "  ",
        "the",
        "don't",
        "'S",
        "\r\n",
    ]
    parts += [
        *SPECIAL,
        "<|endoftext|>",
        "[MASK]",
        "[UNK]",
        "<speaker>",
        "lower",
        "NEW",
        "##ing",
        "</w>",
        "<0x0A>",
        "한국어",
        "东京",
    ]
    rng = random.Random(seed)
    texts = ["".join(rng.choice(parts) for _ in range(rng.randrange(1, 14))) for _ in range(200)]
    return ["", " ", "\n", *LINES, *map(str.upper, LINES[:5]), " the", "the ", "\u0301", *parts[:6], *texts]


def library(model: str, special: list[str] = SPECIAL, size: int = 400, **steps: Any) -> Any:
    """Train a tokenizer of the library on LINES."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, trainers

    unknown = "<unk>" if "<unk>" in special else None
    if model == "BPE":
        letters = steps.pop("alphabet", [])
        made = Library(models.BPE(unk_token=unknown, byte_fallback=steps.pop("byte_fallback", False)))
        trainer: Any = trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, show_progress=False, initial_alphabet=letters
        )
    elif model == "Unigram":
        made = Library(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=special, unk_token=unknown, show_progress=False
        )
    elif model == "WordPiece":
        made = Library(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    else:
        made = Library(models.WordLevel(unk_token=unknown))
        trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    for name, step in steps.items():
        setattr(made, name, step)
    made.train_from_iterator(LINES, trainer)
    return made


def write(folder: Path, made: Any, config: dict[str, Any], model_type: str = "gpt2") -> None:
    made.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "config.json", {"model_type": model_type})


def byte_level(folder: Path, config: dict[str, Any], **steps: Any) -> None:
    from tokenizers import decoders, pre_tokenizers

    alphabet = steps.pop("alphabet", pre_tokenizers.ByteLevel.alphabet())
    steps = {
        "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "decoder": decoders.ByteLevel(),
    } | steps
    made = library("BPE", steps.pop("special", ["<|endoftext|>"]), alphabet=alphabet, **steps)
    write(folder, made, config)


FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
GENERAL = FAST | {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
GPT2 = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}


def prefix_space(folder: Path) -> None:
    from tokenizers import pre_tokenizers

    byte_level(folder, GPT2 | {"add_prefix_space": True}, pre_tokenizer=pre_tokenizers.ByteLevel())


def prefix_space_in_the_library(folder: Path) -> None:
    from tokenizers import pre_tokenizers

    config = FAST | {"eos_token": "<|endoftext|>"}
    byte_level(folder, config, pre_tokenizer=pre_tokenizers.ByteLevel())


def prefix_space_overruled(folder: Path) -> None:
    from tokenizers import pre_tokenizers

    byte_level(folder, GPT2, pre_tokenizer=pre_tokenizers.ByteLevel())


def normalised(folder: Path) -> None:
    from tokenizers import normalizers

    byte_level(
        folder,
        FAST,
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
    )


def normaliser_ignored(folder: Path) -> None:
    """GPT2Tokenizer takes only the vocabulary of a tokenizer.json."""
    from tokenizers import normalizers

    byte_level(folder, GPT2, normalizer=normalizers.Lowercase())


def digits(folder: Path) -> None:
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    byte_level(folder, FAST, pre_tokenizer=split)


def own_pattern(folder: Path) -> None:
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|[^\p{L}\p{N}]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    byte_level(folder, FAST, pre_tokenizer=split)


def lacks_bytes(folder: Path) -> None:
    byte_level(folder, GENERAL, alphabet=[], special=SPECIAL)


def kogpt2(folder: Path) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    made = library(
        "BPE",
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )
    write(folder, made, GENERAL | {"bos_token": "</s>"})


def characters_with_ends(folder: Path) -> None:
    from tokenizers import CharBPETokenizer

    made = CharBPETokenizer(lowercase=True)
    made.train_from_iterator(LINES, vocab_size=300, special_tokens=["<unk>", "<s>"], show_progress=False)
    write(folder, made, FAST | {"unk_token": "<unk>"})


def openai_gpt(folder: Path) -> None:
    """A vocabulary of GPT-1's kind without GPT-1's newline token."""
    from tokenizers import CharBPETokenizer

    made = CharBPETokenizer(lowercase=True)
    made.train_from_iterator(LINES, vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    write(folder, made, {"tokenizer_class": "OpenAIGPTTokenizer", "unk_token": "<unk>"}, "openai-gpt")


def unigram(folder: Path) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    made = library(
        "Unigram",
        size=250,
        normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )
    write(folder, made, GENERAL)


def sentencepiece_bytes(folder: Path) -> None:
    """What a SentencePiece model with byte fallback becomes in a tokenizer.json."""
    from tokenizers import decoders, normalizers

    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made = library(
        "BPE",
        [*SPECIAL[:3], *bytes_],
        600,
        byte_fallback=True,
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )
    content = json.loads(made.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", FAST | {"eos_token": "</s>"})
    write_json(folder / "config.json", {"model_type": "gpt2"})


def chinese_gpt2(folder: Path) -> None:
    """BERT's vocabulary of Chinese characters in front of a GPT-2."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *sorted(set("".join(LINES).replace("\n", "")) - {" ", "\t"}),
    ]
    words += ["the", "##ing", "##s", "##1", "quick"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    write_json(folder / "config.json", {"model_type": "gpt2", "tokenizer_class": "BertTokenizer"})
    write_json(folder / "tokenizer_config.json", {"do_lower_case": False})


def word_pieces(folder: Path) -> None:
    """WordPiece without BERT's own special tokens and without its cleaning."""
    from tokenizers import decoders, pre_tokenizers

    made = library(
        "WordPiece", ["[UNK]", "</s>"], pre_tokenizer=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece()
    )
    write(folder, made, FAST | {"unk_token": "[UNK]", "eos_token": "</s>"})


def whole_words(folder: Path) -> None:
    from tokenizers import normalizers, pre_tokenizers

    made = library("WordLevel", normalizer=normalizers.Lowercase(), pre_tokenizer=pre_tokenizers.Whitespace())
    write(folder, made, GENERAL)


def slow_files_alone(folder: Path) -> None:
    byte_level(folder, GPT2)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").unlink()
    write_json(folder / "vocab.json", content["model"]["vocab"])
    merges = "".join(f"{' '.join(pair)}\n" for pair in content["model"]["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")


def slow_files_with_a_prefix_space(folder: Path) -> None:
    slow_files_alone(folder)
    write_json(folder / "tokenizer_config.json", GPT2 | {"add_prefix_space": True})


def slow_files_with_added_tokens(folder: Path) -> None:
    slow_files_alone(folder)
    write_json(folder / "added_tokens.json", {"<speaker>": 400, "lower": 401})
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["<speaker>"]})


def _with_added(folder: Path, make: Callable[[Path], None]) -> None:
    """Add tokens with every flag, as transformers' add_tokens and save_pretrained do."""
    transformers = pytest.importorskip("transformers")
    make(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    added = transformers.AddedToken
    tokens = [
        added("NEW"),
        added("lower", single_word=True),
        added("don't", lstrip=True, normalized=True),
        added("é1", rstrip=True, normalized=False),
        added("the", single_word=True, lstrip=True, rstrip=True),
    ]
    theirs.add_tokens(tokens)
    theirs.add_special_tokens({"additional_special_tokens": [added("<speaker>", lstrip=True, special=True)]})
    theirs.save_pretrained(folder)


def added_to_gpt2(folder: Path) -> None:
    _with_added(folder, lambda path: byte_level(path, GPT2))


def added_to_a_prefix_space(folder: Path) -> None:
    _with_added(folder, prefix_space)


def added_to_bert(folder: Path) -> None:
    _with_added(folder, chinese_gpt2)
    write_json(folder / "config.json", {"model_type": "bert"})


def added_to_lower_case_bert(folder: Path) -> None:
    def make(path: Path) -> None:
        chinese_gpt2(path)
        write_json(path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})

    _with_added(folder, make)


def added_to_kogpt2(folder: Path) -> None:
    _with_added(folder, kogpt2)


def added_to_unigram(folder: Path) -> None:
    _with_added(folder, unigram)


MAKERS = [
    prefix_space, prefix_space_in_the_library, prefix_space_overruled, normalised, normaliser_ignored, digits,
    own_pattern, lacks_bytes, kogpt2, characters_with_ends, openai_gpt, unigram, sentencepiece_bytes, chinese_gpt2,
    word_pieces, whole_words, slow_files_alone, slow_files_with_a_prefix_space, slow_files_with_added_tokens,
    added_to_gpt2, added_to_a_prefix_space, added_to_bert, added_to_lower_case_bert, added_to_kogpt2,
    added_to_unigram,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_ids_and_text_are_those_of_transformers(tmp_path: Path, make: Callable[[Path], None]) -> None:
    transformers = pytest.importorskip("transformers")
    make(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    texts = hostile_texts()
    expected = [theirs(text, add_special_tokens=False).input_ids for text in texts]
    assert ours.encode_batch(texts, allow_special=True) == expected
    assert ours.vocabulary_size == len(theirs)
    for text, ids in zip(texts, expected, strict=True):
        if ours.kind == "foreign":
            assert ours.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False), text
    # Special tokens are plain text unless they are allowed.
    plain = [theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids for text in texts]
    assert ours.encode_batch(texts) == plain
    ours.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert (again.identity, again.roles[:3]) == (ours.identity, ours.roles[:3])
    copy = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert [copy(text, add_special_tokens=False).input_ids for text in texts] == expected


def write_model(folder: Path, rows: int, prompt: list[int]) -> list[int]:
    """Write a random GPT-2 with two ends of text that it reaches; return its greedy ids without an end."""
    import torch
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(vocab_size=rows, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.4)
    config.bos_token_id = config.eos_token_id = None
    model = GPT2LMHeadModel(config).eval()
    free = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False, pad_token_id=0)[0]
    continuation: list[int] = free[len(prompt) :].tolist()
    end = next(token for token in continuation[5:25] if token not in continuation[:5])
    files = {path.name: path.read_bytes() for path in folder.glob("*.json") if path.name != "config.json"}
    model.generation_config = GenerationConfig(eos_token_id=[rows - 1, end], bos_token_id=1, pad_token_id=2)
    model.save_pretrained(folder)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return continuation


@pytest.mark.parametrize("make", [prefix_space, kogpt2, sentencepiece_bytes, added_to_gpt2])
def test_greedy_text_and_its_end_are_those_of_transformers(tmp_path: Path, make: Callable[[Path], None]) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    folder, copy = tmp_path / "theirs", tmp_path / "ours"
    folder.mkdir()
    make(folder)
    prompt = "The sea  is 한국어"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt, add_special_tokens=False).input_ids
    free = write_model(folder, len(tokenizer), ids)
    convert(folder, copy)
    for path in (folder, copy):
        model = transformers.AutoModelForCausalLM.from_pretrained(path)
        whole = model.generate(torch.tensor([ids]), max_new_tokens=30, do_sample=False)[0].tolist()
        assert len(whole) < len(ids) + len(free)
        loaded = load(path)
        assert loaded.tokenizer.roles.ends == (len(tokenizer) - 1, whole[-1])
        assert (loaded.tokenizer.roles.start, loaded.tokenizer.roles.padding) == (1, 2)
        generation = loaded.submit(prompt, temperature=0.0, max_tokens=30)
        text = "".join(event.text for event in generation)
        assert (generation.finished, generation.tokens) == ("stop", whole[len(ids) :])
        settings = {"clean_up_tokenization_spaces": False, "skip_special_tokens": False}
        expected = tokenizer.decode(whole[:-1], **settings)
        if "\ufffd" not in expected:  # bytes that are not UTF-8 depend on what follows them
            assert tokenizer.decode(ids, **settings) + text == expected


def test_an_unusual_split_is_compared_as_the_same_ids(tmp_path: Path) -> None:
    """The same vocabulary split by an explicit pattern, as Llama 3's and Qwen's are, has the same figures."""
    own = Tokenizer.load("gpt2-mini")
    content = json.loads((resolve("gpt2-mini") / "tokenizer.json").read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_only]}
    write_json(tmp_path / "tokenizer.json", content)
    other = Tokenizer.load(tmp_path)
    assert (other.kind, other.encode(LINES[0])) == ("foreign", own.encode(LINES[0]))
    one, two = compare([("t", own), ("t", other)], "\n".join(LINES))
    assert one.split_share == two.split_share


def unigram_content() -> dict[str, Any]:
    vocab = [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]
    return {"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}}


def bpe_content(**model: Any) -> dict[str, Any]:
    vocab = {"a": 0, "b": 1, "ab": 2}
    return {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]} | model,
    }


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (unigram_content() | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "read"),
        (unigram_content() | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "read"),
        (bpe_content(vocab={"a": 0, "b": 1, "ab": 4_294_967_295}), "token id 4,294,967,295 and 3 tokens"),
        (bpe_content() | {"added_tokens": [{"id": 2_000_000, "content": "c"}]}, "token id 2,000,000 and 4 tokens"),
        (bpe_content(vocab={"a": 10**400, "b": 1, "ab": 2}), "token id 1"),
        (bpe_content(vocab={"a": 0, "b": 1, "ab": 1}), "the same id 1"),
        (bpe_content() | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 40}}, "bytes of one"),
        (bpe_content() | {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 6}}, "bytes of one"),
        (bpe_content() | {"decoder": {"type": "Sequence", "decoders": [DOUBLING] * 6}}, "bytes of one"),
        (
            bpe_content() | {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 900}},
            "200 steps",
        ),
    ],
)
def test_a_strangers_tokenizer_is_bounded(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(DataError, match=message) as refused:
        Tokenizer.load(tmp_path)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("tokens", ["<a>", 5, [{"id": 1}], [{"content": 5}]])
def test_special_tokens_that_are_not_a_list_of_texts_are_refused(tmp_path: Path, tokens: Any) -> None:
    write_json(tmp_path / "tokenizer.json", unigram_content())
    for key in ("additional_special_tokens", "extra_special_tokens"):
        write_json(tmp_path / "tokenizer_config.json", {key: tokens})
        with pytest.raises(DataError, match="cannot be read"):
            Tokenizer.load(tmp_path)


def test_a_text_that_the_library_refuses_is_a_data_error(tmp_path: Path) -> None:
    content = unigram_content()
    content["model"]["unk_id"] = None
    write_json(tmp_path / "tokenizer.json", content)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("ab") == [1, 2]
    with pytest.raises(DataError, match="gives up on a text"):
        tokenizer.encode("aé")


@pytest.mark.parametrize("byte_level", [True, False])
def test_the_dropout_of_training_is_off(tmp_path: Path, byte_level: bool) -> None:
    content = bpe_content(dropout=0.9)
    if byte_level:
        content = json.loads((resolve("gpt2-mini") / "tokenizer.json").read_text(encoding="utf-8"))
        content["model"]["dropout"] = 0.9
    write_json(tmp_path / "tokenizer.json", content)
    tokenizer = Tokenizer.load(tmp_path)
    expected = Tokenizer.load("gpt2-mini").encode("ab" * 30) if byte_level else [2] * 30
    assert [tokenizer.encode("ab" * 30) for _ in range(5)] == [expected] * 5
    assert tokenizer.kind == ("gpt2" if byte_level else "foreign")


def test_many_added_tokens_are_checked_in_linear_time() -> None:
    class Counted(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

    names = [Counted(f"<t{number}>") for number in range(300)]
    ids = {character: number for number, character in enumerate(BYTE_CHARACTERS)}
    added = {AddedToken(name): 256 + number for number, name in enumerate(names)}
    assemble(ids, [], added, Path("vocabulary"), Path("merges"))
    assert Counted.compared < 5_000


@pytest.mark.parametrize("make", [byte_level, openai_gpt, unigram, word_pieces, added_to_kogpt2])
def test_each_file_is_read_once(
    tmp_path: Path, make: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, {}) if make is byte_level else make(tmp_path)
    read: list[str] = []

    def counted(path: Path) -> dict[str, Any]:
        read.append(path.name)
        return read_object(path)

    monkeypatch.setattr("headwater.tokenizer.folder.read_object", counted)
    Tokenizer.load(tmp_path)
    assert "tokenizer_config.json" in read
    assert sorted(read) == sorted(set(read))
