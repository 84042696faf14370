"""Files cut short, with flipped bits, emptied, zeroed or taken for one another: an error that names the file.

The rule for what Headwater wrote, and for formats that carry checksums: a HeadwaterError that names the file or
its folder, or the very result that the untouched file gives; never another exception, never another result. A
format without a checksum (a model of a stranger's, OpenAI's arrays, tables, recipes) cannot show that a number in
it was another one: there only what breaks the form must be named, and a flipped bit may change what is read, but
ends in no other exception. Streams that are used up to where they are damaged (dumps, WARC) may give less, if they
say so.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zstandard

from headwater.errors import HeadwaterError

FLIPS = int(os.environ.get("HEADWATER_FAULTS_FLIPS", "6"))  # of each file
Use = Callable[[Path], Any]
pytestmark = pytest.mark.slow


def mutations(content: bytes, other: bytes, chosen: random.Random) -> Iterator[tuple[str, bytes]]:
    """What may happen to a file: (how, new content); the first half breaks its form."""
    yield "emptied", b""
    for share in (0.1, 0.5, 0.95):
        yield f"cut at {share}", content[: int(len(content) * share)]
    yield "its last byte gone", content[:-1]
    yield "its first bytes zeroed", bytes(min(64, len(content))) + content[64:]
    yield "another file in its place", other
    for _ in range(FLIPS):
        place, bit = chosen.randrange(max(1, len(content))), chosen.randrange(8)
        flipped = bytearray(content)
        flipped[place : place + 1] = bytes([flipped[place] ^ 1 << bit])
        yield f"bit {bit} of byte {place} flipped", bytes(flipped)


def is_structural(how: str) -> bool:
    return not how.startswith("bit ")


def judge(use: Use, target: Path, path: Path, expected: Any, how: str, *, may_differ: bool = False) -> str:
    """ "named" or "same" (or "other", where that may be); anything else is a failure."""
    try:
        found = use(target)
    except HeadwaterError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{path.name}, {how}: {type(error).__name__}: {error}") from error
    else:
        if found == expected:
            return "same"
        assert may_differ, f"{path.name}, {how}: another result and no error"
        return "other"
    names = {path.name, path.parent.name, str(target)} | ({"preset"} if path.suffix == ".toml" else set())
    assert any(name in said for name in names), f"{path.name}, {how}: {said} names no file"
    return "named"


# What reads each kind of folder, as the commands do, and what it finds.
def _links(folder: Path) -> Any:
    from headwater.corpus.web.links import read_links

    return list(read_links(folder))


def _corpus(folder: Path) -> Any:
    from headwater.corpus import read_documents, read_funnel

    return [(d.id, d.text) for d in read_documents(folder)], read_funnel(folder)


def _tokenizer(folder: Path) -> Any:
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    return tokenizer.identity, tokenizer.encode("The river 강 ran.")


def _tokens(folder: Path) -> Any:
    from headwater.pretraining import TokenStream
    from headwater.tokenizer import Tokenizer

    streams = [TokenStream(folder, part, 16) for part in ("train", "validation")]
    found = [stream.window(index)[0].tobytes() for stream in streams for index in range(stream.windows)]
    return found, Tokenizer.load(folder / "tokenizer").identity


def _model(folder: Path) -> Any:
    from headwater.inference import load

    lm = load(folder)
    return {n: w.numpy().tobytes() for n, w in lm.model.state_dict().items()}, lm.tokenizer.identity


def _tuned(folder: Path) -> Any:
    from headwater.finetuning import FineTuned

    tuned = FineTuned.load(folder)
    weights = {name: weight.numpy().tobytes() for name, weight in tuned.base.state_dict().items()}
    return weights, tuned.tokenizer.identity, tuned.task, tuned.labels, tuned.description.columns


def _results(folder: Path) -> Any:
    from headwater.evaluation import Results, read_examples
    from headwater.report.content import read_content

    found = Results.read(folder)
    examples = [list(read_examples(folder, entry.protocol)) for entry in found.results]
    return found, examples, read_content([folder]).scores


def _report(folder: Path) -> Any:
    from headwater.report.content import read_content

    content = read_content([folder])
    return content.runs, content.samples, content.fine_tuned


def _pages(folder: Path) -> Any:
    from headwater.corpus import read_pages
    from headwater.corpus.building.plan import open_source

    open_source(0, folder)
    return [page for path in sorted(folder.glob("*.warc.gz")) for page in read_pages(path, [])]


WRITTEN: dict[str, Use] = {
    "links": _links,
    "corpus": _corpus,
    "tokenizer": _tokenizer,
    "tokens": _tokens,
    "model": _model,
    "tuned": _tuned,
    "results": _results,
    "run": _report,
    "samples": _report,
    "pages": _pages,
}


@pytest.fixture(scope="module")
def world(campaign: Any) -> Path:
    from headwater.quickstart.samples import write_samples
    from headwater.storage import SILENT

    world: Path = campaign.root / "world"
    options: dict[str, Any] = {"seed": 1, "device": "cpu", "progress": SILENT}
    write_samples(world / "model", ["The river", "A stone"], world / "samples", **options)
    if not (world / "pages").exists():
        arguments = ["corpus", "fetch", "links-of-web", "--out", "pages"]
        settings = ["--set=delay=0.0", "--set=allow_private=true"]
        ended = campaign.warm.wait(campaign.warm.start([*arguments, *settings], world))
        assert ended.status == 0, ended.output
    return world


def files_of(folder: Path) -> list[Path]:
    """Files that a reader may open; checkpoints vouch for themselves and are tried on their own."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    return [path for path in found if "checkpoints" not in path.relative_to(folder).parts]


@pytest.mark.parametrize("kind", list(WRITTEN))
def test_what_headwater_wrote_is_never_taken_for_something_else(
    campaign: Any, world: Path, counted: Callable[[str, int], None], tmp_path: Path, kind: str
) -> None:
    use, source = WRITTEN[kind], world / kind
    folder = tmp_path / kind
    shutil.copytree(source, folder)
    expected = use(folder)
    paths = files_of(folder)
    done = 0
    for number, path in enumerate(paths):
        content = path.read_bytes()
        other = paths[number - 1].read_bytes()
        for how, changed in mutations(content, other, campaign.random):
            if changed == content:
                continue
            path.write_bytes(changed)
            judge(use, folder, path, expected, how)
            done += 1
        path.unlink()
        judge(use, folder, path, expected, "gone", may_differ=path.name == "headwater.json")
        done += 1
        path.write_bytes(content)
    assert use(folder) == expected
    counted("mutations", done)


def test_a_run_past_a_damaged_checkpoint_ends_the_same(
    campaign: Any, world: Path, counted: Callable[[str, int], None], tmp_path: Path
) -> None:
    from headwater.training import Ranks
    from headwater.training.checkpoint import Checkpoints

    folder = tmp_path / "checkpoints"
    shutil.copytree(world / "run" / "checkpoints", folder)
    newest = sorted(folder.iterdir())[-1]
    before = sorted(folder.iterdir())[-2]
    notes: list[str] = []
    run = json.loads((newest / "headwater.json").read_text())["config"]["run"]
    checkpoints = Checkpoints(folder, keep=3, ranks=Ranks(), note=notes.append, run=run)
    done = 0
    for path in files_of(newest):
        content, other = path.read_bytes(), (before / path.name).read_bytes()
        for how, changed in mutations(content, other, campaign.random):
            if changed == content:
                continue
            path.write_bytes(changed)
            notes.clear()
            found = checkpoints.newest()
            assert found is not None
            if path.name == "headwater.json" and found[0] == newest:  # a line end that nothing depends on
                assert json.loads(changed) == json.loads(content), how
            else:
                assert found[0] == before, f"{path.name}, {how}"
                assert newest.name in notes[0]
            done += 1
        path.write_bytes(content)
    counted("mutations", done)


def strangers(world: Path, root: Path) -> dict[str, tuple[Path, Use, bool]]:
    """Formats from outside: name -> (file or folder, what reads it, whether its content carries checksums)."""
    root.mkdir()
    found: dict[str, tuple[Path, Use, bool]] = {}
    shutil.copytree(world / "model", root / "huggingface", ignore=shutil.ignore_patterns("headwater.json"))
    found["huggingface"] = root / "huggingface", _model, False
    shutil.copytree(world / "tuned", root / "fine-tuned", ignore=shutil.ignore_patterns("headwater.json"))
    for extra in ("metrics.json", "report.html", "config.toml"):
        (root / "fine-tuned" / extra).unlink(missing_ok=True)
    found["fine-tuned"] = root / "fine-tuned", _tuned, False
    found["gpt1-release"] = write_gpt1(root / "gpt1-release"), _gpt1, False
    (root / "recipe.toml").write_text('preset = "gpt2-nano"\nsteps = 10\nbatch_size = 4\n[model]\nlayers = 2\n')
    found["recipe"] = root / "recipe.toml", _recipe, False
    return found


def _gpt1(folder: Path) -> Any:
    from headwater.convert import openai

    with mock.patch.object(openai, "_HEAD_WIDTH", 4):
        return {n: w.numpy().tobytes() for n, w in openai.read_gpt1(folder).state_dict().items()}


def _recipe(path: Path) -> Any:
    from headwater.pretraining import PretrainConfig

    return PretrainConfig.load(path).architecture


def write_gpt1(folder: Path) -> Path:
    """A release of GPT-1's layout, eight wide."""
    folder.mkdir()
    shapes: list[list[int]] = [[4, 8], [6, 8]]
    shapes += [[1, 8, 24], [24], [1, 8, 8], [8], [8], [8], [1, 8, 32], [32], [1, 32, 8], [8], [8], [8]]
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    flat = np.random.default_rng(1).standard_normal(sum(int(np.prod(shape)) for shape in shapes))
    for number, part in enumerate(np.array_split(flat.astype(np.float32), 10)):
        np.save(folder / f"params_{number}.npy", part)
    return folder


def test_formats_of_strangers(
    campaign: Any, world: Path, counted: Callable[[str, int], None], tmp_path: Path
) -> None:
    done = 0
    for name, (target, use, has_checksums) in strangers(world, tmp_path / "strangers").items():
        expected = use(target)
        paths = files_of(target) if target.is_dir() else [target]
        for number, path in enumerate(paths):
            content = path.read_bytes()
            other = paths[number - 1].read_bytes() if len(paths) > 1 else b"PK\x03\x04 something else"
            for how, changed in mutations(content, other, campaign.random):
                if changed == content:
                    continue
                path.write_bytes(changed)
                # TOML may end anywhere; arrays of one shape in one another's place are arrays all the same.
                plain = name == "recipe" or (how.startswith("another") and path.suffix == ".npy")
                may_differ = not has_checksums and (not is_structural(how) or plain)
                judge(use, target, path, expected, how, may_differ=may_differ)
                done += 1
            path.write_bytes(content)
    counted("mutations", done)


def test_streams_name_the_position_of_damage(
    campaign: Any, world: Path, counted: Callable[[str, int], None], tmp_path: Path
) -> None:
    """Dumps and archives: what is read of a damaged one is less, and a sentence or an error names the file."""
    lines = zstandard.ZstdDecompressor().decompress((world / "dump.zst").read_bytes())
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(lines)
    warc = (world / "pages-0.warc").read_bytes()
    members = b"".join(gzip.compress(b"WARC/1.0" + part, mtime=0) for part in warc.split(b"WARC/1.0")[1:])
    streams: dict[str, tuple[bytes, Callable[[Path], tuple[list[Any], list[str]]]]] = {
        "a.zst": (checked, _dump),
        "a.gz": (gzip.compress(lines, mtime=0), _dump),
        "a.xz": (lzma.compress(lines), _dump),
        "a.bz2": (bz2.compress(lines), _dump),
        "a.warc": (warc, _archive),
        "a.warc.gz": (members, _archive),
    }
    done = 0
    for name, (content, read) in streams.items():
        path = tmp_path / name
        path.write_bytes(content)
        expected, notes = read(path)
        assert expected
        assert not notes
        for how, changed in [*mutations(content, b"PK\x03\x04 else", campaign.random)]:
            path.write_bytes(changed)
            try:
                found, notes = read(path)
            except HeadwaterError as error:
                found, notes = [], [str(error)]
            except Exception as error:
                raise AssertionError(f"{name}, {how}: {type(error).__name__}: {error}") from error
            said = any(name in note for note in notes)
            plain = name in {"a.xml", "a.warc"} and not is_structural(how)
            assert said or plain or found == expected, f"{name}, {how}: another result and no word of it"
            assert len(found) <= len(expected)
            done += 1
    counted("mutations", done)


def _dump(path: Path) -> tuple[list[Any], list[str]]:
    from headwater.corpus.web.links import _Funnel, _submissions

    funnel = _Funnel()
    return list(_submissions(path, funnel)), funnel.cut


def _archive(path: Path) -> tuple[list[Any], list[str]]:
    from headwater.corpus import read_pages

    notes: list[str] = []
    return list(read_pages(path, notes)), notes


def test_stored_answers_are_right_or_computed_again(
    chosen: random.Random, counted: Callable[[str, int], None], tmp_path: Path
) -> None:
    from headwater.evaluation import ContinuationRequest, Scored
    from headwater.evaluation.answers import AnswerFile

    path = tmp_path / ".out.answers"
    answers = {
        ContinuationRequest((n, n + 1), (n + 2,)): Scored((chosen.random(),), (bool(n % 2),)) for n in range(60)
    }
    with AnswerFile(path, "model", "fp32") as stored:
        stored.add(answers)
    content = path.read_bytes()
    done = 0
    for how, changed in [m for _ in range(6) for m in mutations(content, b"another", chosen)]:
        path.write_bytes(changed)
        with AnswerFile(path, "model", "fp32") as stored:
            found = stored.look_up(list(answers))
            assert all(answers[request] == answer for request, answer in found.items()), how
            stored.add(answers)
            assert stored.look_up(list(answers)) == answers, how
        done += 1
    counted("mutations", done)


def test_files_that_are_not_tables_are_named(
    campaign: Any, world: Path, counted: Callable[[str, int], None], tmp_path: Path
) -> None:
    """What a table without a checksum can show: bytes that are no text, quotes and rows that do not close."""
    import pyarrow
    import pyarrow.parquet

    from headwater.finetuning.rows.labels import learn_labels
    from headwater.finetuning.rows.read import Columns, read_table

    def read(path: Path) -> Any:
        rows = list(read_table(path, "classify", Columns())[1])
        return rows, learn_labels(rows, "classify", None, str(path))

    csv = (world / "table.csv").read_bytes()
    rows = [line.split(",") for line in csv.decode().splitlines()[1:]]
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows).encode()
    sink = io.BytesIO()
    columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, write_page_checksum=True)
    broken = {
        "binary": b"\x00\x01\x02" * 40,
        "empty": b"",
        "an archive": b"PK\x03\x04" + bytes(60),
    }
    done = 0
    for name, content in (("a.csv", csv), ("a.tsv", csv.replace(b",", b"\t")), ("a.jsonl", lines)):
        path = tmp_path / name
        path.write_bytes(content)
        whole = read(path)
        skipped = {"a.tsv": b"a\tb\tc\n", "a.jsonl": b'{"text": "a", "label"\n'}  # rows that are left out
        if name in skipped:
            path.write_bytes(content + skipped[name])
            assert read(path) == whole
        path.write_bytes(content.decode().encode("utf-16-le"))  # without a mark of its order
        assert read(path) == whole
        for changed in (*broken.values(), content + b'"unclosed,sea\n') if name == "a.csv" else broken.values():
            path.write_bytes(changed)
            with pytest.raises(HeadwaterError, match=name.replace(".", "[.]")):
                read(path)
            done += 1
        for _ in range(30):
            place, bit = campaign.random.randrange(len(content)), campaign.random.randrange(8)
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            judge(read, path, path, None, f"bit {bit} of byte {place}", may_differ=True)
            done += 1
    path = tmp_path / "a.parquet"
    path.write_bytes(sink.getvalue())
    expected = read(path)
    for how, changed in mutations(sink.getvalue(), csv, campaign.random):
        path.write_bytes(changed)
        judge(read, path, path, expected, how, may_differ=not is_structural(how))
        done += 1
    counted("mutations", done)
