"""Every zero-shot protocol, worked out again through transformers and compared example by example.

    python tools/verify_evaluation.py --model MODEL --data $HEADWATER_DATA [--data TOKENS --data LABELS]
    python tools/verify_evaluation.py --random gpt2-small --data $HEADWATER_DATA

What each protocol asks stands in tools/recounts.py. For sets that are not there, a few lines in the official
format stand in. What is drawn (top-k 2) is followed: each recorded log-probability has to be that of one of the
two likeliest tokens, and the text has to be theirs. Prints a table in Markdown; the exit status is 1 where a
log-probability differs by more than TOLERANCE.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recounts import RECOUNTS, Answer, Drawn, Files, Peer, Written, options_of

TOLERANCE = 1e-4


def stand_ins(files: Files, folder: Path) -> None:
    """A few lines in the official format for the sets that are not handed on: CBT, CoQA, RACE-high, 1BW, text8."""
    import yaml

    stories: dict[str, list[str]] = {"CN": [], "NE": []}
    for part in ("train", "valid", "test"):
        for (act,) in yaml.safe_load(files(f"fixtures/cbt_{part}.yml").read_text(encoding="utf-8"))["acts"]:
            kind = act["id"].removeprefix("cbt:")
            *story, query = act["text"].split("\n")[1:]
            if kind in stories and len(story) == 20:
                numbered = [f"{number} {line}" for number, line in enumerate(story, 1)]
                asked = f"21 {query}\t{act['eval_labels' if 'eval_labels' in act else 'labels'][0]}\t\t"
                stories[kind].append("\n".join([*numbered, asked + "|".join(act["label_candidates"])]) + "\n\n")
    for kind, found in stories.items():
        (folder / f"cbtest_{kind}_valid_2000ex.txt").write_text("".join(found), encoding="utf-8")
    passage = json.loads(files.lines("lambada_test_openai.jsonl")[0])["text"]
    turns = [("Who is it about?", "a man"), ("What happens?", "he thinks"), ("Why?", "unknown")]
    talk = {"id": "1", "story": passage, "additional_answers": {}}
    talk |= {"questions": [{"input_text": q} for q, _ in turns], "answers": [{"input_text": a} for _, a in turns]}
    (folder / "coqa-dev-v1.0.json").write_text(json.dumps({"data": [talk]}), encoding="utf-8")
    rows = [json.loads(line) for line in files.lines("race_1000_m500_h500.jsonl")]
    high = next(row for row in rows if row["example_id"].startswith("high"))
    mine = [row for row in rows if row["article"] == high["article"]]
    options = [options_of(row) for row in mine]
    article = {"article": high["article"], "questions": [row["question"] for row in mine], "options": options}
    (folder / "RACE/test/high").mkdir(parents=True)
    article["answers"] = [row["answer"] for row in mine]
    (folder / "RACE/test/high/1.txt").write_text(json.dumps(article), encoding="utf-8")
    text = "\n".join(files.lines("ptb.test.txt")[:400]) + "\n"
    (folder / "news.en.heldout-00000-of-00050").write_text(text, encoding="utf-8")
    letters = " ".join(re.findall("[a-z]+", files("wikitext2/wiki.test.raw").read_text(encoding="utf-8").lower()))
    (folder / "text8.test.5mb").write_text(letters[:30_000], encoding="utf-8")
    (folder / "wikitext-103").mkdir()
    tokens = files("wikitext2/wiki.test.tokens").read_text(encoding="utf-8")
    (folder / "wikitext-103/wiki.test.tokens").write_text(tokens[:40_000], encoding="utf-8")


def difference(expected: Answer, found: dict[str, Any], peer: Peer) -> float:
    """The largest difference of a log-probability; infinite where texts or their number differ."""
    scores = found["log_probabilities"]
    if isinstance(expected, Drawn):
        return followed(expected.prompt, scores, found["text"], peer)
    mine = expected.scores if isinstance(expected, Written) else expected
    if isinstance(expected, Written) and expected.text != found["text"]:
        return float("inf")
    if len(mine) != len(scores):
        return float("inf")
    return max((abs(a - b) for a, b in zip(mine, scores, strict=True)), default=0.0)


def followed(prompt: Sequence[int], scores: Sequence[float], text: str, peer: Peer) -> float:
    """Which of the two likeliest tokens each log-probability belongs to, and whether they make the text."""
    tokens: list[int] = []
    largest = 0.0
    steps = peer.likely(prompt)
    for score in scores:
        likely = steps.send(tokens[-1]) if tokens else next(steps)
        two = likely.topk(2)
        nearest = int((two.values - score).abs().argmin())
        largest = max(largest, abs(float(two.values[nearest]) - score))
        tokens.append(int(two.indices[nearest]))
    return largest if peer.text(tokens) == text else float("inf")


def main() -> int:
    """Compare; 1 where a protocol does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model folder with a GPT-2")
    parser.add_argument("--random", metavar="PRESET", help="in its place: random weights of this size")
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with files; repeatable")
    parser.add_argument(
        "--tasks", default="", help="protocols, or beginnings of them; all that are there by default"
    )
    parser.add_argument("--limit", type=int, default=3, help="examples of each protocol")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or random_model(arguments.random or "gpt2-small", Path(folder) / "model")
        return 0 if compare(model, arguments.data, arguments.tasks, arguments.limit, Path(folder)) else 1


def random_model(preset_name: str, folder: Path) -> Path:
    """A model of random weights with GPT-2's own vocabulary."""
    from headwater.model import build_model, preset
    from headwater.model.folder import save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    folder.mkdir()
    model = build_model(preset(preset_name, vocabulary=tokenizer.vocabulary_size), seed=1)
    save_model(model, folder, tokenizer=tokenizer)
    return folder


def compare(model: Path, data: Sequence[Path], tasks: str, limit: int, work: Path) -> bool:
    """Print a row a protocol; whether all agree."""
    from headwater.evaluate import evaluate
    from headwater.evaluate.results import read_examples
    from headwater.evaluate.run import select
    from headwater.evaluate.tasks import TASKS

    own = work / "stand-ins"
    own.mkdir()
    stand_ins(Files(data), own)
    chosen = [task.protocol for task in select(tasks.split(","))] if tasks else list(TASKS)
    peer, files = Peer(model), Files([*data, own])
    print("| protocol | examples | largest difference | here | chance |\n|---|---|---|---|---|", flush=True)
    all_agree = True
    for protocol in chosen:
        out = work / f"out-{protocol}"
        results = evaluate(model, [protocol], [*data, own], out, limit=limit)
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
        all_agree &= agrees
        first = results.results[0]
        chance = "" if first.chance is None else f"{first.chance:.3g}"
        print(f"| {protocol} | {count} | {worst:.0e} | {first.metric} {first.value:.4g} | {chance} |", flush=True)
    return all_agree


if __name__ == "__main__":
    sys.exit(main())
