"""What is fuzzed: each parser of outside data as a function of bytes, which must end well or in a HeadwaterError.

A target writes the bytes where the parser looks for them and reads them as a command would. Several files in one
input are separated by SPLIT. Where a format guards its content by a checksum, which would hide everything behind
it from random bytes, the checksum is made to agree. There is no target for GGUF, which Headwater writes and never
reads.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from headwater.errors import HeadwaterError

SPLIT = b"\x1e"
MAXIMUM_BYTES = 64 * 1024  # of an input
# An extractor works in a process that is stopped after 20 s in Headwater; here its time would be the fuzzer's.
_HTML_BYTES = 4096


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as name:
        yield Path(name)


def parts(data: bytes, count: int) -> list[bytes]:
    """`data` cut at SPLIT into `count` parts, the last ones empty where there are fewer."""
    found = data.split(SPLIT, count - 1)
    return found + [b""] * (count - len(found))


def checkpoint_index(data: bytes) -> None:
    """TensorFlow's checkpoint format: the table, its blocks, its entries, and tensors read by them."""
    from headwater.convert import tensor_bundle

    with folder() as place, agreeing_checksums(tensor_bundle):
        block = data + b"\x00" + bytes(4)
        # A footer that points to one index block, which points to the whole of `data` as a block of entries.
        entry = _varint(0) + _varint(len(data))
        index = b"\x00\x01" + bytes([len(entry)]) + b"~" + entry + struct.pack("<II", 0, 1)
        handles = _varint(0) + _varint(0) + _varint(len(block)) + _varint(len(index))
        footer = handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
        (place / "m.index").write_bytes(block + index + b"\x00" + bytes(4) + footer)
        (place / "m.data-00000-of-00001").write_bytes(bytes(256))
        with suppress(HeadwaterError):
            bundle = tensor_bundle.TensorBundle(place / "m")
            for name in bundle.entries:
                with suppress(HeadwaterError):
                    bundle.read(name)
        (place / "m.index").write_bytes(data)
        with suppress(HeadwaterError):
            tensor_bundle.TensorBundle(place / "m")


def release_arrays(data: bytes) -> None:
    """GPT-1's release: `params_shapes.json` and `params_0.npy`."""
    from headwater.convert import openai

    shapes, array = parts(data, 2)
    with folder() as place, mock.patch.object(openai, "_HEAD_WIDTH", 1):
        (place / openai.SHAPES).write_bytes(shapes)
        (place / "params_0.npy").write_bytes(array)
        with suppress(HeadwaterError):
            openai.read_gpt1(place)


def model_folder(data: bytes) -> None:
    """`config.json` and the header of `model.safetensors`, followed by as many zeros as a small model has."""
    from headwater.model import load_model

    config, header = parts(data, 2)
    with folder() as place:
        (place / "config.json").write_bytes(config)
        content = struct.pack("<Q", len(header)) + header + bytes(8192)
        with suppress(Exception):
            ends = [entry["data_offsets"][1] for entry in json.loads(header).values() if "data_offsets" in entry]
            if 0 <= max(ends) <= 8192:
                content = content[: 8 + len(header) + max(ends)]
        (place / "model.safetensors").write_bytes(content)
        with suppress(HeadwaterError):
            load_model(place)
        (place / "model.safetensors").write_bytes(data)
        with suppress(HeadwaterError):
            load_model(place)


def tokenizer_files(data: bytes) -> None:
    """Hugging Face's four files: a folder with `tokenizer.json` alone, and one with `vocab.json` and the rest."""
    from headwater.tokenizer import Tokenizer

    layout, vocabulary, merges, config = parts(data, 4)
    with folder() as place:
        if layout[:1] == b"j":
            (place / "tokenizer.json").write_bytes(vocabulary)
        else:
            (place / "vocab.json").write_bytes(vocabulary)
            (place / "merges.txt").write_bytes(merges)
        if config:
            (place / "tokenizer_config.json").write_bytes(config)
        with suppress(HeadwaterError):
            tokenizer = Tokenizer.load(place)
            ids = tokenizer.encode("The river 강, 1 2  x\n")
            tokenizer.decode(ids)
            assert all(0 <= token < tokenizer.vocabulary_size for token in ids)


def warc(data: bytes) -> None:
    """WARC and WET, plain, one gzip member a file, and as they stand."""
    from headwater.corpus import read_pages

    with folder() as place:
        for name, content in (
            ("a.warc", data),
            ("a.warc.gz", gzip.compress(data, 1)),
            ("b.warc.gz", data),
            ("a.wet", data),
        ):
            (place / name).write_bytes(content)
            notes: list[str] = []
            with suppress(HeadwaterError):
                for page in read_pages(place / name, notes):
                    assert len(page.data) <= 8 * 1024**2


def html(data: bytes) -> None:
    """A page as bytes: its encoding, its main text; the first byte chooses what the server said of it."""
    from headwater.corpus import Page, extract_page

    charsets = ("", "utf-8", "utf-16", "euc-kr", "shift_jis", "latin1", "no-such", "utf-7", "idna", "hex")
    page = data[1:_HTML_BYTES]
    charset = charsets[data[0] % len(charsets)] if data else ""
    text = extract_page(Page(name="", data=page, charset=charset)).text
    text.encode("utf-8", "replace")


def tables(data: bytes) -> None:
    """Tables of labelled rows, and text of a user's own: CSV, TSV, JSON Lines, plain."""
    from headwater.corpus.sources.text import read_text_file
    from headwater.finetuning.rows.labels import learn_labels
    from headwater.finetuning.rows.read import Columns, read_table

    with folder() as place:
        for ending in ("csv", "tsv", "jsonl"):
            path = place / f"a.{ending}"
            path.write_bytes(data)
            for task in ("classify", "choice"):
                with suppress(HeadwaterError):
                    rows = list(read_table(path, task, Columns())[1])  # type: ignore[arg-type]
                    learn_labels(rows, task, None, str(path))  # type: ignore[arg-type]
        for ending in ("jsonl", "txt"):
            path = place / f"b.{ending}"
            path.write_bytes(data)
            with suppress(HeadwaterError):
                for document in read_text_file(path, "b"):
                    document.text.encode("utf-8")


def evaluation_sets(data: bytes) -> None:
    """The official files of a zero-shot protocol: its name, then the content of each of its files."""
    from headwater.evaluation import all_tasks
    from headwater.evaluation.score_task import examples_of

    name, *contents = data.split(SPLIT)
    task = all_tasks().get(name.decode("utf-8", "replace"))
    if task is None or any(source.kind for source in task.sources):
        return
    with folder() as place:
        places = {}
        for source, content in zip(task.sources, contents, strict=False):
            path = places[source.role] = place / source.names[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            if source.names[0].endswith("/"):
                path.mkdir()
                (path / "1.txt").write_bytes(content)
            else:
                path.write_bytes(content)
        if not all(source.role in places for source in task.sources if source.needed):
            return
        with suppress(HeadwaterError):
            for example in examples_of(task, places, _reader())[:20]:
                with suppress(HeadwaterError):
                    answers = [_answered(request) for request in task.requests(example, _reader())]
                    task.score(example, answers, _reader())


def task_sets(data: bytes) -> None:
    """A set of GPT-1's table: its name, what stands in every file of its training part, and in all others."""
    from headwater.finetuning.rows.labels import learn_labels
    from headwater.finetuning.rows.row import usable
    from headwater_papers.task_sets.hub import file_name
    from headwater_papers.task_sets.sets import BY_NAME, find

    name, train, rest = parts(data, 3)
    benchmark = BY_NAME.get(name.decode("utf-8", "replace"))
    if benchmark is None:
        return
    with folder() as place:
        others = [*benchmark.validation, *(source for test in benchmark.tests.values() for source in test.sources)]
        contents = {file: rest for source in others for file in source.files}
        contents |= {file: train for source in benchmark.train for file in source.files}
        contents |= {file_name("train"): train, file_name("validation"): rest}
        for file, content in contents.items():
            path = place / benchmark.folders[0] / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix:
                path.write_bytes(content)
            else:
                path.mkdir(exist_ok=True)
                (path / "1.txt").write_bytes(content)
        with suppress(HeadwaterError):
            found = find(benchmark, place)
            if found is not None:
                rows = usable(found.train, benchmark.task, name.decode()).rows
                learn_labels(rows, benchmark.task, benchmark.target, name.decode())


def link_dumps(data: bytes) -> None:
    """Reddit's submission dumps: zstd as it stands, zstd around the bytes, and the plain lines."""
    import zstandard

    from headwater.corpus import LinksConfig
    from headwater.corpus.web.links import LinkRules, _Funnel, _submissions

    rules = LinkRules(LinksConfig())
    with folder() as place:
        for name, content in (
            ("a.zst", data),
            ("b.zst", zstandard.compress(data, 1)),
            ("c.jsonl", data),
            ("d.xz", data),
            ("e.gz", data),
        ):
            (place / name).write_bytes(content)
            with suppress(HeadwaterError):
                for submission in _submissions(place / name, _Funnel()):
                    _, link = rules.apply(submission)
                    json.dumps(link).encode()


def settings(data: bytes) -> None:
    """A recipe in TOML, `--set`, and `headwater.json`."""
    from headwater.config import parse_settings
    from headwater.pretraining import PretrainConfig
    from headwater.storage import read_manifest

    with folder() as place:
        (place / "recipe.toml").write_bytes(data)
        with suppress(HeadwaterError):
            _ = PretrainConfig.load(place / "recipe.toml").architecture
        (place / "headwater.json").write_bytes(data)
        with suppress(HeadwaterError):
            read_manifest(place)
    with suppress(HeadwaterError):
        parse_settings([data.decode("utf-8", "replace")])


_CALLS = ("/v1/completions", "/classify", "/inspect", "/v1/embeddings")


def api_bodies(data: bytes) -> None:
    """Requests to the server: the first byte chooses the call, the second the model, the rest is the body."""
    if len(data) < 2:
        return
    path = _CALLS[data[0] % len(_CALLS)]
    status = _server()(path, data[2:])
    assert status < 500 or status == 504, f"{path} answered {status}"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "checkpoint-index": checkpoint_index,
    "release-arrays": release_arrays,
    "model-folder": model_folder,
    "tokenizer-files": tokenizer_files,
    "warc": warc,
    "html": html,
    "tables": tables,
    "evaluation-sets": evaluation_sets,
    "task-sets": task_sets,
    "link-dumps": link_dumps,
    "settings": settings,
    "api-bodies": api_bodies,
}


@contextmanager
def agreeing_checksums(module: Any) -> Iterator[None]:
    """Within the block every checksum that `module` compares is right."""
    before = module.is_intact
    module.is_intact = lambda _, masked: True
    try:
        yield
    finally:
        module.is_intact = before


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@cache
def _reader() -> Any:
    """What a zero-shot protocol sees of a tiny model."""
    import headwater as hw
    from headwater.evaluation import RequestEncoder

    return RequestEncoder(hw.Tokenizer.train(["the river runs to the sea. "], vocab_size=270), context=256)


def warm_up() -> None:
    """Let the tokenizer choose its engine, which it does once, after 2 MiB, for longer than an input may take."""
    _reader().tokenizer.encode("river " * (1 << 19))


def _answered(request: Any) -> Any:
    """What a model might say."""
    from headwater.evaluation import ContinuationRequest, Generated, Scored

    if isinstance(request, ContinuationRequest):
        count = len(request.continuation)
        return Scored((-1.0,) * count, (True,) * count)
    return Generated("the sea. the river", (1, 2), (-1.0, -2.0))


@cache
def _server() -> Callable[[str, bytes], int]:
    """An application with a tiny model and classifier, called without sockets: (path, body) -> status."""
    import headwater as hw
    from headwater.finetuning import FineTuned, Labels, TaskModel
    from headwater.inference import LanguageModel
    from headwater.model import build_model, preset
    from headwater.serve import ServeConfig
    from headwater.serve.api import create_app
    from headwater.serve.served import Served

    tokenizer = hw.Tokenizer.train(["the river runs to the sea. "], vocab_size=270).with_task_tokens()
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=32, width=16, layers=1, heads=2)
    labels = Labels(target="class", names=["sea", "stone"])
    head = TaskModel(build_model(config, seed=2), "classify", 2, dropout=0.1)
    fine_tuned = FineTuned.of(head.eval(), tokenizer, labels)
    served = Served("m", LanguageModel(head.model, tokenizer, slots=4), fine_tuned)
    app = create_app([served], ServeConfig(host="0.0.0.0", tokens=2048, seconds=20.0))
    loop = asyncio.new_event_loop()

    async def start() -> Any:
        context = app.router.lifespan_context(app)
        await context.__aenter__()
        return context

    context = loop.run_until_complete(start())

    async def call(path: str, body: bytes) -> int:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        statuses: list[int] = []
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await app(scope, receive, send)
        return statuses[0] if statuses else 499

    answer = lambda path, body: loop.run_until_complete(call(path, body))  # noqa: E731
    answer.context = context  # type: ignore[attr-defined]  # kept: the models' threads end with it
    return answer
