"""BERT's vocabularies: the ids of Hugging Face's tokenizer, files in both directions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.reading import read_json
from headwater.storage import write_json
from headwater.tokenizer import Tokenizer

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-[]東京é"]
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *LETTERS,
    *(f"##{c}" for c in LETTERS),
    "the",
    "un",
    "##able",
]
TEXT = "The unable café of 東京, [MASK] isn't [SEP]\tquite\x00 Déjà\u200d vu 😀!"


def write_folder(folder: Path, tokens: list[str] = TOKENS, **rules: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **rules})
    return folder


@pytest.mark.parametrize("rules", [{}, {"do_lower_case": False}, {"strip_accents": False}])
def test_ids_are_those_of_transformers(tmp_path: Path, rules: dict[str, bool]) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(write_folder(tmp_path / "bert", **rules))
    assert ours.kind == "foreign"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("the unable [MASK]."), max_size=60))
    def agree(text: str) -> None:
        assert ours.encode(text, allow_special=True) == theirs(text, add_special_tokens=False).input_ids

    agree()
    assert ours.encode(TEXT, allow_special=True) == theirs(TEXT, add_special_tokens=False).input_ids
    # Special tokens in a text are plain text unless they are allowed.
    assert ours.mask not in ours.encode(TEXT)


def test_a_folder_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(write_folder(tmp_path / "bert", do_lower_case=False))
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").identity == ours.identity
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    before, after = ours.frame
    assert auto(TEXT).input_ids == [*before, *ours.encode(TEXT, allow_special=True), *after]
    assert auto.mask_token_id == ours.mask
    # tokenizer.json has the rules, and alone it gives the same ids.
    (tmp_path / "again" / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "again").identity == ours.identity
    assert Tokenizer.load(tmp_path / "again").encode(TEXT) == ours.encode(TEXT)


def test_added_tokens_follow_the_vocabulary(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_folder(tmp_path / "bert")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    auto.add_special_tokens({"additional_special_tokens": ["[E1]", "[E2]"]})
    auto.save_pretrained(tmp_path / "more")
    ours = Tokenizer.load(tmp_path / "more")
    assert ours.vocabulary_size == len(auto) == len(TOKENS) + 2
    text = "[E1] unable [E2]"
    assert ours.encode(text, allow_special=True) == auto(text, add_special_tokens=False).input_ids
    ours.save(tmp_path / "more")
    assert Tokenizer.load(tmp_path / "more").identity == ours.identity
    # An id after a gap is not kept, as in transformers.
    write_json(tmp_path / "bert" / "added_tokens.json", {"[E1]": len(TOKENS) + 1})
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    ours = Tokenizer.load(tmp_path / "bert")
    assert ours.encode("[E1]", allow_special=True) == auto("[E1]", add_special_tokens=False).input_ids


@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("normalizer", None),
        ("normalizer", {"clean_text": False}),
        ("normalizer", {"lowercase": False}),
        ("pre_tokenizer", {"type": "WhitespaceSplit"}),
        ("model", {"unk_token": "the"}),
        ("model", {"max_input_chars_per_word": 4}),
    ],
)
def test_a_library_file_that_encodes_otherwise(
    tmp_path: Path, part: str, change: dict[str, object] | None, name: str
) -> None:
    """Only BertTokenizer ignores the steps in the file."""
    transformers = pytest.importorskip("transformers")
    Tokenizer.load(write_folder(tmp_path)).save(tmp_path)
    content = read_json(tmp_path / "tokenizer.json")
    content[part] = None if change is None else content[part] | change
    write_json(tmp_path / "tokenizer.json", content)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": name})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert ours.encode(TEXT, allow_special=True) == theirs(TEXT, add_special_tokens=False).input_ids


def test_a_model_folder_with_only_a_vocabulary_has_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    own = Tokenizer.of_model(tmp_path, len(TOKENS))
    assert own is not None
    assert own.identity == Tokenizer.load(tmp_path).identity


@pytest.mark.parametrize("texts", [[], [""], [TEXT], [TEXT, "", "the un"]])
def test_a_batch_an_array_and_single_texts_have_the_same_ids(tmp_path: Path, texts: list[str]) -> None:
    ours = Tokenizer.load(write_folder(tmp_path))
    single = [ours.encode(text) for text in texts]
    assert ours.encode_batch(texts) == single
    ids, offsets = ours.encode_array(texts)
    assert ids.tolist() == [i for part in single for i in part]
    assert offsets.tolist() == [sum(map(len, single[:n])) for n in range(len(texts) + 1)]


def test_decoding_joins_pieces_to_words(tmp_path: Path) -> None:
    ours = Tokenizer.load(write_folder(tmp_path))
    assert ours.decode(ours.encode("The unable cat")) == "the unable cat"


def test_a_word_that_is_listed_as_special_keeps_its_space(tmp_path: Path) -> None:
    listed = {str(TOKENS.index("the")): {"content": "the"}}
    ours = Tokenizer.load(write_folder(tmp_path, added_tokens_decoder=listed))
    assert "the" in ours.special_tokens
    assert ours.decode(ours.encode("un the unable")) == "un the unable"
    assert ours.decode(ours.encode("[CLS] the [SEP]", allow_special=True)) == "[CLS] the [SEP]"


def test_a_vocabulary_without_special_tokens_opens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_folder(tmp_path, [t for t in TOKENS if t not in {"[CLS]", "[MASK]"}])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert Tokenizer.load(tmp_path).encode(TEXT) == theirs(TEXT, split_special_tokens=True).input_ids[1:-1]
    with pytest.raises(DataError, match="'the' on lines"):
        Tokenizer.load(write_folder(tmp_path, [*TOKENS, "the"]))


@pytest.mark.parametrize(
    "rule",
    [{"do_lower_case": "yes"}, {"do_lower_case": None}, {"tokenize_chinese_chars": 1}, {"strip_accents": []}],
)
def test_a_rule_that_is_neither_true_nor_false_is_named(tmp_path: Path, rule: dict[str, object]) -> None:
    with pytest.raises(
        DataError, match=f"tokenizer_config.json has {next(iter(rule))} = .*expected true or false"
    ):
        Tokenizer.load(write_folder(tmp_path, **rule))


def test_any_vocabulary_can_have_a_mask() -> None:
    plain = Tokenizer.train(["some text"], vocab_size=260)
    masked = plain.with_mask()
    assert plain.mask is None
    assert masked.mask == plain.vocabulary_size
    assert masked.with_mask() is masked
    assert masked.encode("a [MASK].", allow_special=True).count(masked.mask) == 1
    assert masked.frame == ([], [])


def test_an_older_vocab_txt_in_another_order_is_not_read(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(write_folder(tmp_path / "bert"))
    ours.save(tmp_path / "again")
    reordered = [*TOKENS[:5], *reversed(TOKENS[5:])]
    (tmp_path / "again" / "vocab.txt").write_text("".join(f"{token}\n" for token in reordered), encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    ids = Tokenizer.load(tmp_path / "again").encode(TEXT, allow_special=True)
    assert ids == theirs(TEXT, add_special_tokens=False).input_ids == ours.encode(TEXT, allow_special=True)


def test_a_lone_surrogate_is_refused_and_a_pair_is_one_character(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_folder(tmp_path / "bert", ["[PAD]", *TOKENS[1:], "\U0001f600"]))
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("\U0001f600")
    with pytest.raises(DataError, match=r"text 2 of 2 has the lone surrogate U\+D83D at character 3"):
        tokenizer.encode_batch(["fine", "the\ud83d"])
