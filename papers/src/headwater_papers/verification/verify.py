"""Compute every zero-shot protocol again with transformers and compare each example.

    python -m headwater_papers.verification --model MODEL --data $HEADWATER_DATA [--data TOKENS --data LABELS]
    python -m headwater_papers.verification --random gpt2-small --data $HEADWATER_DATA

`recounts` has what each protocol asks. For sets that may not be redistributed, examples in their official
format are written from other texts. Drawn tokens (top-k 2) are checked one by one: each recorded log-probability
must be that of one of the two most probable tokens, and the text must be theirs. Prints a Markdown table. With
--json, the rows are also written to a file, from which `docs/evaluation.md` is generated. The exit status is 1 if
a log-probability differs by more than TOLERANCE.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater_papers.verification.peer import Drawn, Files, Peer, PeerAnswer, Written
from headwater_papers.verification.recounts import RECOUNTS, options_of

TOLERANCE = 1e-4
_INCOMPLETE = "\ufffd"  # transformers decodes an incomplete character to this


def substitutes(files: Files, folder: Path, tokenizer: Any, limit: int) -> None:
    """Write `limit` examples of each set that may not be redistributed, in its official format, from other texts.

    CBT, CoQA, RACE-high, HellaSwag, 1BW, text8, WikiText-103, a tokens folder.
    """
    passages = files.lines("lambada_development_plain_text.txt")
    _stories([part.strip() for line in passages for part in line.split(" . ")], folder, limit)
    turns = [("Who is it about?", "a man"), ("What happens?", "he thinks"), ("Why?", "unknown")]
    asked, told = ([{"input_text": turn[side]} for turn in turns] for side in (0, 1))
    talks = [
        {"id": str(number), "story": text, "additional_answers": {}, "questions": asked, "answers": told}
        for number, text in enumerate(passages[: limit // len(turns) + 1])
    ]
    (folder / "coqa-dev-v1.0.json").write_text(json.dumps({"data": talks}), encoding="utf-8")
    rows = [json.loads(line) for line in files.lines("race_1000_m500_h500.jsonl")]
    high = [row for row in rows if row["example_id"].startswith("high")][:limit]
    article: dict[str, Any] = {"article": passages[0], "questions": [row["question"] for row in high]}
    article |= {"options": [options_of(row) for row in high], "answers": [row["answer"] for row in high]}
    (folder / "RACE/test/high").mkdir(parents=True)
    (folder / "RACE/test/high/1.txt").write_text(json.dumps(article), encoding="utf-8")
    (folder / "hellaswag_val.jsonl").write_text("".join(_endings(passages, limit)), encoding="utf-8")
    text = "\n".join(files.lines("ptb.test.txt")) + "\n"
    (folder / "news.en.heldout-00000-of-00050").write_text(text, encoding="utf-8")
    letters = " ".join(re.findall("[a-z]+", files("wikitext2/wiki.test.raw").read_text(encoding="utf-8").lower()))
    (folder / "text8.test.5mb").write_text(letters[:400_000], encoding="utf-8")
    (folder / "wikitext-103").mkdir()
    tokens = files("wikitext2/wiki.test.tokens").read_text(encoding="utf-8")
    (folder / "wikitext-103/wiki.test.tokens").write_text(tokens[:400_000], encoding="utf-8")
    _own_folders(passages, folder, tokenizer, limit)


def _stories(sentences: Sequence[str], folder: Path, limit: int) -> None:
    """Return twenty numbered sentences and a question in which a word of four or more letters is left out."""
    sentences = [sentence for sentence in sentences if len(re.findall("[a-z]{4,}", sentence)) > 2]
    stories: list[str] = []
    for start in range(0, len(sentences) - 21, 21):
        *story, asked = sentences[start : start + 21]
        words = list(dict.fromkeys(re.findall("[a-z]{4,}", " ".join(story))))
        answer = re.findall("[a-z]{4,}", asked)[1]
        candidates = sorted({answer, *[word for word in words if word != answer][:9]})
        query = re.sub(rf"(?<!\S){answer}(?!\S)", "XXXXX", asked, count=1)
        if "XXXXX" in query and len(candidates) == 10 and len(stories) < limit:
            numbered = [f"{place} {line} ." for place, line in enumerate(story, 1)]
            last = f"21 {query} .\t{answer}\t\t{'|'.join(candidates)}"
            stories.append("\n".join([*numbered, last]) + "\n\n")
    for kind in ("CN", "NE"):
        (folder / f"cbtest_{kind}_valid_2000ex.txt").write_text("".join(stories), encoding="utf-8")


def _endings(passages: Sequence[str], limit: int) -> Iterator[str]:
    """Return rows of HellaSwag's official file, every second one with the marks of its WikiHow part."""
    for number in range(limit):
        first, second, *others = (text.split(" . ")[0] for text in passages[5 * number : 5 * number + 5])
        endings = [f"{second} .", *(f"{text} ." for text in others)]
        context = f"{first} ."
        if number % 2:
            context, endings = f"[header] {context} [title] {second} .", [f"[step] {text}" for text in endings]
        row = {
            "activity_label": "Reading a book",
            "ctx_a": context,
            "ctx_b": "then he",
            "ctx": f"{context} Then he",
        }
        yield json.dumps(row | {"endings": endings, "label": 0}) + "\n"


def _own_folders(passages: Sequence[str], folder: Path, tokenizer: Any, limit: int) -> None:
    """Write a tokens folder with `limit` held-out documents."""
    from headwater.corpus import Document, write_documents
    from headwater.pretraining import pack
    from headwater.storage import Stage

    documents = [Document(id=f"{number:032x}", text=text) for number, text in enumerate(passages[: 4 * limit])]
    with Stage(folder / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents(documents, work)
    with Stage(folder / "tokenizer", kind="tokenizer", config={}, inputs={}).write() as work:
        tokenizer.save(work)
    pack(folder / "corpus", folder / "tokenizer", folder / "tokens", 0.3)


def digests(data: Sequence[Path], work: Path, limit: int = 3) -> dict[str, str]:
    """Return a hash for each protocol, of its requests and of its scores for made-up answers.

    No model is used. If a hash changes, the protocol's scores cannot be compared with earlier ones.
    """
    from headwater.evaluation import DataFiles, RequestEncoder, all_tasks
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    work.mkdir()
    substitutes(Files(data), work, tokenizer, 4)
    encoder = RequestEncoder(tokenizer, 1_024)
    listing = DataFiles([*data, work])
    by_protocol = {}
    for protocol, task in all_tasks().items():
        asked: list[Any] = []
        records = []
        for example in task.limited(task.read(listing.locate(task.sources), encoder), limit):
            wanted, answers = list(task.requests(example, encoder)), list[Any]()
            for _ in range(8):
                asked += wanted
                answers += [_answer(request, tokenizer) for request in wanted]
                wanted = list(task.further(example, answers, encoder))
            records.append({"id": example.id} | task.score(example, answers, encoder))
        kept = [asked, records, task.summarise(records)]
        by_protocol[protocol] = hashlib.sha256(json.dumps(_rounded(kept)).encode()).hexdigest()[:12]
    return by_protocol


def _answer(request: Any, tokenizer: Any) -> Any:
    from headwater.evaluation import Generated, Scored

    tokens = getattr(request, "continuation", None)
    written = tokens is None
    tokens = request.prompt[: min(4, request.max_tokens)] if tokens is None else tokens
    values = tuple(-0.01 * (1 + token * 7_919 % 997) for token in tokens)
    if written:
        return Generated(tokenizer.decode(list(tokens)), tuple(tokens), values)
    return Scored(values, tuple(token % 2 == 0 for token in tokens))


def _rounded(value: Any) -> Any:
    """Return the value as JSON has it, numbers with six digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return _rounded(vars(value)) if hasattr(value, "__dict__") else str(value)


def difference(expected: PeerAnswer, measured: dict[str, Any], peer: Peer) -> float:
    """Return the largest difference of a log-probability; infinite if the texts or their number differ.

    The engine leaves out the bytes of an incomplete character at the end of a text.
    """
    scores = measured["log_probabilities"]
    if isinstance(expected, Drawn):
        return followed(expected.prompt, scores, measured["text"], peer)
    mine = expected.scores if isinstance(expected, Written) else expected
    if isinstance(expected, Written) and expected.text.rstrip(_INCOMPLETE) != measured["text"].rstrip(_INCOMPLETE):
        return float("inf")
    if len(mine) != len(scores):
        return float("inf")
    return max((abs(a - b) for a, b in zip(mine, scores, strict=True)), default=0.0)


def followed(prompt: Sequence[int], scores: Sequence[float], text: str, peer: Peer) -> float:
    """Match each log-probability with one of the two most probable tokens. Return the largest difference."""
    tokens: list[int] = []
    largest = 0.0
    steps = peer.likely(prompt)
    for score in scores:
        likely = steps.send(tokens[-1]) if tokens else next(steps)
        two = likely.topk(2)
        nearest = int((two.values - score).abs().argmin())
        largest = max(largest, abs(float(two.values[nearest]) - score))
        tokens.append(int(two.indices[nearest]))
    return largest if peer.text(tokens).rstrip(_INCOMPLETE) == text.rstrip(_INCOMPLETE) else float("inf")


def main() -> int:
    """Compare all protocols. Return 1 if one does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model folder with a GPT-2")
    parser.add_argument("--random", metavar="PRESET", help="use random weights of this size instead")
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with files; repeatable")
    parser.add_argument(
        "--tasks", default="", help="protocols, or beginnings of their names; by default all that have their files"
    )
    parser.add_argument("--digests", type=Path, help="write the hash of each protocol to this file, and stop")
    parser.add_argument("--limit", type=int, default=100, help="examples of each protocol")
    parser.add_argument(
        "--json", type=Path, help="file to add each row to; protocols that it already has are skipped"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.digests:
            from headwater.evaluation import VERSION
            from headwater.storage import write_json

            own_digests = digests(arguments.data, Path(folder) / "substitutes")
            write_json(arguments.digests, {"version": VERSION, "digests": own_digests})
            return 0
        model = arguments.model or random_model(arguments.random or "gpt2-small", Path(folder) / "model")
        named = str(arguments.model or f"random {arguments.random or 'gpt2-small'}")
        known = read_rows(arguments.json)
        done = known.get(named, {}).keys()
        agree = True
        for row in compare(model, arguments.data, arguments.tasks, arguments.limit, Path(folder), done):
            agree = agree and row.agrees
            if arguments.json:
                from headwater.storage import write_json

                known = read_rows(arguments.json)  # another process may have added rows
                known.setdefault(named, {})[row.protocol] = [row.examples, row.worst]
                write_json(arguments.json, known)
    return 0 if agree else 1


def read_rows(path: Path | None) -> dict[str, dict[str, list[float]]]:
    """Return the rows of each model that a file has."""
    if path is None or not path.exists():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8")))


def random_model(preset_name: str, folder: Path) -> Path:
    """Return a folder with random weights, GPT-2's vocabulary and its context.

    The weights are five times as large as initial ones, with which all tokens are almost equally probable.
    """
    from headwater.model import build_model, preset, save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    folder.mkdir()
    config = preset(preset_name, vocabulary=tokenizer.vocabulary_size, context=1_024, init_deviation=0.1)
    model = build_model(config, seed=1)
    save_model(model, folder, tokenizer=tokenizer)
    return folder


class Verified(NamedTuple):
    """The result of one protocol: the number of examples, and the largest difference of a log-probability."""

    protocol: str
    examples: int
    worst: float
    agrees: bool


def compare(
    model: Path, data: Sequence[Path], tasks: str, limit: int, work: Path, done: Collection[str] = ()
) -> Iterator[Verified]:
    """Compare each protocol that is not `done`; print and yield a row for it."""
    from headwater.evaluation import all_tasks, evaluate, read_examples, select
    from headwater.tokenizer import Tokenizer

    own = work / "substitutes"
    own.mkdir()
    tokenizer = Tokenizer.load(model)
    substitutes(Files(data), own, tokenizer, max(limit, 4))
    chosen = [task.protocol for task in select(tasks.split(","))] if tasks else list(all_tasks())
    peer, files = Peer(model), Files([*data, own])
    print("| protocol | examples | largest difference | here | chance |\n|---|---|---|---|---|", flush=True)
    for protocol in (protocol for protocol in chosen if protocol not in done):
        out = work / f"out-{protocol}"
        results = evaluate(model, [protocol], [*data, own], out, limit=limit, allow_empty=True)
        whole = next((entry for entry in results.skipped if entry.examples is None), None)
        if whole is not None:
            print(f"| {protocol} | – | {whole.reason} | | |", flush=True)
            continue
        left_out = sum(entry.examples or 0 for entry in results.skipped)
        records = list(read_examples(out, protocol))
        expected = RECOUNTS[protocol](files, peer, limit)
        worst, count = 0.0, 0
        for record, answers in zip(records, expected, strict=False):
            if len(record["answers"]) != len(answers):
                worst = float("inf")
            pairs = zip(answers, record["answers"], strict=False)
            worst = max([worst, *(difference(mine, theirs, peer) for mine, theirs in pairs)])
            count += 1
        agrees = worst < TOLERANCE and count + left_out >= min(limit, len(records))
        first = results.results[0]
        chance = "" if first.chance is None else f"{first.chance:.3g}"
        print(f"| {protocol} | {count} | {worst:.0e} | {first.metric} {first.value:.4g} | {chance} |", flush=True)
        yield Verified(protocol, count, worst, agrees)
