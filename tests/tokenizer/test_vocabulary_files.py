"""Tokenizer folders: other libraries read and write them with equal ids; what does not fit is named."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.cli.main import app
from headwater.corpus import build_corpus
from headwater.errors import DataError, FolderError, HeadwaterError, ResourceError, UsageError
from headwater.model import build_model, preset, save_model
from headwater.storage import resources
from headwater.storage.resources import Resource
from headwater.tokenizer import PATTERN, Kind, Tokenizer, train_tokenizer

TEXT = "It's the theme of the thesis: 안녕 세계, naïve café!  Two  spaces\n\n and 12 lines. 😀"


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return Tokenizer.train([TEXT * 4], vocab_size=320, special_tokens=["<pad>"])


def test_loading_reads_each_file_once(small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.save(tmp_path)
    opened: list[str] = []
    real = Path.open

    def recording(path: Path, *args: Any, **options: Any) -> Any:
        opened.append(path.name)
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", recording)
    assert Tokenizer.load(tmp_path).vocabulary == small.vocabulary
    assert sorted(opened) == ["tokenizer.json", "tokenizer_config.json"]


def test_auto_tokenizer_opens_it_with_equal_ids(small: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tuned = small.with_task_tokens()
    tuned.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = TEXT + "<|endoftext|>x<pad>_start_ y_classify_"
    assert auto(text).input_ids == tuned.encode(text, allow_special=True)
    assert auto.decode(auto(TEXT).input_ids) == TEXT
    assert len(auto) == tuned.vocabulary_size
    assert auto.eos_token_id == tuned.end_of_text
    # And the reverse: what transformers saves opens here as the same tokenizer.
    auto.save_pretrained(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").identity == tuned.identity
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    assert Tokenizer.load(tmp_path / "saved").identity == tuned.identity


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from(TEXT + "<|endoftext|>"), max_size=60))
def test_tiktoken_takes_its_ranks(small: Tokenizer, text: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken.Encoding(
        "mine", pat_str=PATTERN, mergeable_ranks=small.ranks(), special_tokens=small.special_tokens
    )
    assert encoding.encode_ordinary(text) == small.encode(text)
    assert encoding.encode(text, allowed_special="all") == small.encode(text, allow_special=True)


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
@pytest.mark.parametrize("task_tokens", [False, True])
def test_saved_and_loaded_is_the_same(kind: str, task_tokens: bool, tmp_path: Path) -> None:
    if kind == "gpt1":
        pytest.importorskip("spacy")
    special = ["<pad>", "<unk>"] if kind == "gpt2" else ["<pad>"]
    tokenizer = Tokenizer.train([TEXT * 4], kind=kind, vocab_size=320, special_tokens=special)  # type: ignore[arg-type]
    if task_tokens:
        tokenizer = tokenizer.with_task_tokens()
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.identity == tokenizer.identity
    assert loaded.kind == kind
    assert loaded.special_tokens == tokenizer.special_tokens
    (tmp_path / "vocab.json").unlink()
    assert Tokenizer.load(tmp_path).identity == tokenizer.identity


def test_folder_of_the_original_release_opens(golden_data: Path, tmp_path: Path) -> None:
    for kind in ("gpt2", "gpt1"):
        assert Tokenizer.load(golden_data / "tokenizers" / kind).identity == Tokenizer.load(kind).identity


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", ""), ("gpt2", "a"), ("gpt2", "\udcff"), ("gpt1", ""), ("gpt1", "<unk>"), ("gpt1", "\ud800")],
)
def test_a_bad_special_token_is_refused_before_anything_is_read(kind: Kind, name: str) -> None:
    with pytest.raises(UsageError, match="is empty, already an ordinary token or not UTF-8"):
        Tokenizer.train(Path("nowhere"), kind, vocab_size=300, special_tokens=[name])


def test_a_special_token_that_text_can_spell_is_refused() -> None:
    with pytest.raises(UsageError, match="already an ordinary token"):
        Tokenizer.train(["the the"], vocab_size=300, special_tokens=["Ġthe"])


def _edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_merges_that_do_not_fit_the_vocabulary_are_named(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    merges = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    (tmp_path / "merges.txt").write_text("\n".join([*merges[:3], "q q", *merges[3:]]), encoding="utf-8")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(
        DataError, match=r"merge 3 of .*merges.txt merges 'q' and 'q', but 'qq' is not in .*vocab.json"
    ):
        Tokenizer.load(tmp_path)


def test_merges_cut_between_lines_are_noticed(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    merges = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    (tmp_path / "merges.txt").write_text("\n".join(merges[:-5]) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"merges.txt has \d+ merges and none makes .* cut short"):
        Tokenizer.load(tmp_path)


def test_merges_cut_inside_a_line_are_noticed(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nĠ", encoding="utf-8")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"merge 2 of .*merges.txt is 'Ġ'; expected two tokens"):
        Tokenizer.load(tmp_path)


def test_a_role_that_is_not_a_name_is_no_role(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"unk_token": ["a"], "pad_token": []})
    )
    assert Tokenizer.load(tmp_path).vocabulary == small.vocabulary


def test_truncated_json_is_named_with_its_line(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(FolderError, match=r"tokenizer.json is damaged: .* in line \d+"):
        Tokenizer.load(tmp_path)


def test_an_id_without_a_token_is_named(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    _edit(tmp_path, "vocab.json", '"#": 2,', '"#": 3,')
    with pytest.raises(DataError, match=r"vocab.json has no token with the id 2; expected 315 tokens"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
def test_an_ordinary_token_may_be_listed_as_a_special_one(kind: str, tmp_path: Path) -> None:
    """As `transformers` does for a padding token that the vocabulary has."""
    tokenizer = Tokenizer.train(["the cat sat; the hat"] * 9, kind=kind, vocab_size=270 if kind == "gpt2" else 30)
    tokenizer.save(tmp_path)
    merged = "".join(tokenizer.vocabulary.merges[0])
    end = ";" if kind == "gpt2" else ";</w>"  # in no merge
    listed = {token: tokenizer.vocabulary.ids[token] for token in ("t", merged, end)}
    (tmp_path / "added_tokens.json").write_text(json.dumps(listed), encoding="utf-8")
    roles = dict(zip(("pad_token", "cls_token", "sep_token"), listed, strict=True))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(roles), encoding="utf-8")
    loaded = Tokenizer.load(tmp_path)
    assert loaded.special_tokens == tokenizer.special_tokens | listed
    text = "the cat; the hat"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert loaded.encode(f"s{merged}", allow_special=True)[-1] == listed[merged]
    if kind == "gpt2":
        assert loaded.ranks() == tokenizer.ranks()


def test_a_folder_named_as_an_original_is_not_the_original(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden_data: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    original = Tokenizer.load("gpt2")
    Path("gpt2").mkdir()
    original.save(Path("gpt2"))
    assert Tokenizer.load("gpt2").identity == original.identity
    small.save(Path("gpt2"))
    with pytest.raises(UsageError, match=r"Write \./gpt2 for the folder"):
        Tokenizer.load("gpt2")
    assert Tokenizer.load("./gpt2").identity == small.identity


def test_an_empty_token_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()  # which is read in place of the older file
    (tmp_path / "added_tokens.json").write_text(f'{{"": {small.vocabulary_size}}}', encoding="utf-8")
    with pytest.raises(DataError, match="has no token with the id 315"):
        Tokenizer.load(tmp_path)


def test_files_of_characters_are_not_called_cut(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"한": 0, "글": 1, "한글": 2}', encoding="utf-8")
    (tmp_path / "merges.txt").write_text("한 글\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"vocab.json is not byte-level: '한' has a character .* tokenizer.json"):
        Tokenizer.load(tmp_path)


def test_a_vocabulary_of_characters_needs_its_unknown_token(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "a</w>": 1, "\\n</w>": 2}', encoding="utf-8")
    (tmp_path / "merges.txt").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"vocab.json lacks <unk>"):
        Tokenizer.load(tmp_path)


def test_an_added_token_with_two_ids_has_the_first(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    listed = content["added_tokens_decoder"]
    listed[str(small.vocabulary_size)] = listed[str(small.end_of_text)]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert Tokenizer.load(tmp_path).identity == small.identity  # as transformers opens it


def test_a_file_without_a_vocabulary_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}', encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer.json has no vocabulary"):
        Tokenizer.load(tmp_path)


def test_folder_without_a_tokenizer_or_altered_since_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="nowhere does not exist; expected a folder with tokenizer"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="has no tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "text.txt").write_text("the theme of the thesis", encoding="utf-8")
    train_tokenizer([tmp_path / "text.txt"], tmp_path / "tokenizer", vocab_size=260)
    _edit(tmp_path / "tokenizer", "merges.txt", "h e", "e h")
    with pytest.raises(FolderError, match="altered after it was written"):
        Tokenizer.load(tmp_path / "tokenizer")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A small tokenizer in the place of GPT-2's original, with its own hashes; no file is there yet."""
    Tokenizer.train([TEXT], vocab_size=300).save(tmp_path)
    known = {}
    for name, file in (("gpt2/encoder.json", "vocab.json"), ("gpt2/vocab.bpe", "merges.txt")):
        content = (tmp_path / file).read_bytes()
        url = (tmp_path / file).as_uri()
        known[name] = Resource(hashlib.sha256(content).hexdigest(), f"tokenizers/{name}", url)
    monkeypatch.setattr(resources, "RESOURCES", known)
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


@pytest.mark.parametrize("place", ["data/tokenizers/gpt2", "cache/gpt2"])
def test_the_original_is_read_from_data_folder_and_cache(made_up: Path, place: str) -> None:
    with pytest.raises(ResourceError, match="was not found"):
        Tokenizer.load("gpt2")
    _put(made_up / "vocab.json", made_up / place / "encoder.json")
    _put(made_up / "merges.txt", made_up / place / "vocab.bpe")
    assert Tokenizer.load("gpt2").identity == Tokenizer.load(made_up).identity


def test_the_original_is_read_from_an_installed_package(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def __init__(self, name: str, path: Path) -> None:
            self.name, self._path = name, path

        def locate(self) -> Path:
            return self._path

    carried = [
        Installed("encoder.json", made_up / "vocab.json"),
        Installed("vocab.bpe", made_up / "merges.txt"),
    ]
    monkeypatch.setattr(importlib.metadata, "files", lambda name: carried if name == "carrier" else None)
    for name, resource in resources.RESOURCES.items():
        known = replace(resource, distribution="carrier")
        monkeypatch.setitem(resources.RESOURCES, name, known)
    assert Tokenizer.load("gpt2").identity == Tokenizer.load(made_up).identity


def test_the_original_is_fetched_only_with_download_and_kept(made_up: Path) -> None:
    with pytest.raises(ResourceError, match="--download"):
        Tokenizer.load("gpt2")
    assert Tokenizer.load("gpt2", download=True).identity == Tokenizer.load(made_up).identity
    assert (made_up / "cache" / "gpt2" / "vocab.bpe").is_file()
    assert Tokenizer.load("gpt2").identity == Tokenizer.load(made_up).identity


@pytest.mark.parametrize("call", ["pack", "convert", "load"])
def test_what_advises_a_download_can_download(made_up: Path, call: str) -> None:
    model = made_up / "model"
    model.mkdir()
    save_model(build_model(preset("gpt2-pico", layers=1, vocabulary=300), seed=1), model)
    documents = [f"{number} rivers run. " * 100 for number in range(20)]
    (made_up / "text.txt").write_text("<|endoftext|>".join(documents), encoding="utf-8")
    build_corpus([made_up / "text.txt"], made_up / "corpus")

    def use(download: bool) -> None:
        if call == "load":
            hw.load(model, tokenizer="gpt2", download=download).tokenizer.encode("a")
            return
        source = [str(made_up / "corpus"), "--validation", "0.4", "--out"] if call == "pack" else [str(model)]
        options = ["--tokenizer", "gpt2", *(["--download"] if download else [])]
        app([call, *source, str(made_up / "out"), *options], standalone_mode=False)

    with pytest.raises(ResourceError, match="--download"):
        use(download=False)
    use(download=True)


def test_file_with_another_hash_is_never_used(made_up: Path) -> None:
    _put(made_up / "vocab.json", made_up / "data/tokenizers/gpt2/encoder.json")
    (made_up / "data/tokenizers/gpt2/vocab.bpe").write_text("a b\n", encoding="utf-8")
    with pytest.raises(ResourceError, match=r"is not the original gpt2/vocab\.bpe: its hash differs"):
        Tokenizer.load("gpt2")
    (made_up / "merges.txt").write_text("changed on the way", encoding="utf-8")
    with pytest.raises(ResourceError, match="is not the original"):
        Tokenizer.load("gpt2", download=True)
    assert not (made_up / "cache" / "gpt2" / "vocab.bpe").exists()


def test_merges_with_other_line_ends_are_the_same(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    merges = (tmp_path / "merges.txt").read_bytes()
    (tmp_path / "merges.txt").write_bytes(merges.replace(b"\n", b"\r\n"))
    assert Tokenizer.load(tmp_path).identity == small.identity
    assert (
        json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))[" ".join(["t"])] == small.encode("t")[0]
    )


def test_save_takes_text_and_creates_the_folder(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["the river runs " * 9], vocab_size=270)
    tokenizer.save(f"{tmp_path}/new/folder")
    assert Tokenizer.load(tmp_path / "new" / "folder").identity == tokenizer.identity
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(HeadwaterError, match="file"):
        tokenizer.save(tmp_path / "file")


def test_tokenizer_json_decides_as_in_auto_tokenizer(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path)
    version, first, second, *rest = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    (tmp_path / "merges.txt").write_text("\n".join([version, second, first, *rest]), encoding="utf-8")
    assert Tokenizer.load(tmp_path).identity == small.identity
