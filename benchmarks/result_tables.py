"""The tables of the pages, written from `benchmarks/results`: a column for each class of processors."""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"

# The loads and the tasks of busy.py.
LOADS = {
    "beside-1": ("beside one busy process", "바쁜 프로세스 하나 옆에서"),
    "beside-2": ("beside two busy processes", "바쁜 프로세스 둘 옆에서"),
    "quota-1.5": ("with a quota of 1.5 cores", "코어 1.5개 할당량에서"),
}
TASKS = {
    "train-pico": ("pre-train gpt2-pico, bf16", "gpt2-pico 사전 학습, bf16"),
    "train-mini": ("pre-train gpt2-mini, bf16", "gpt2-mini 사전 학습, bf16"),
    "finetune": ("fine-tune 5 layers × 320, λ = 0.5, bf16", "층 5개 × 320 미세 조정, λ = 0.5, bf16"),
    "score": ("score 8 pairs, gpt2-mini, fp32", "쌍 8개 채점, gpt2-mini, fp32"),
    "generate": ("generate 24 tokens, gpt2-mini, fp32", "토큰 24개 생성, gpt2-mini, fp32"),
    "serve": ("serve 24 tokens to one client, gpt2-mini", "클라이언트 하나에 토큰 24개 서빙, gpt2-mini"),
}
# What each row is called in English and in Korean; the tables have this order.
ROWS = {
    "logits-512-bf16": ("logits of 512 tokens, gpt2-small, bf16", "토큰 512개의 로짓(logit), gpt2-small, bf16"),
    "logits-512-fp32": ("the same, fp32", "같은 작업, fp32"),
    "prefill-bf16": ("read a prompt of 512 tokens, bf16", "토큰 512개짜리 프롬프트 읽기, bf16"),
    "prefill-fp32": ("the same, fp32", "같은 작업, fp32"),
    "prefill-int8": ("the same, int8", "같은 작업, int8"),
    "decode-1-bf16": ("generate, one text, bf16", "글 하나 생성, bf16"),
    "decode-1-fp32": ("the same, fp32", "같은 작업, fp32"),
    "decode-1-int8": ("the same, int8", "같은 작업, int8"),
    "decode-8-bf16": ("generate, eight texts, bf16", "글 여덟 개 생성, bf16"),
    "decode-8-fp32": ("the same, fp32", "같은 작업, fp32"),
    "decode-8-int8": ("the same, int8", "같은 작업, int8"),
    "requests-bf16": ("score requests of 20–600 tokens, bf16", "토큰 20–600개짜리 요청 채점, bf16"),
    "requests-fp32": ("the same, fp32", "같은 작업, fp32"),
    "pretrain-small-1024-bf16": (
        "pre-train gpt2-small, 1 × 1,024, bf16",
        "gpt2-small 사전 학습, 1 × 1,024, bf16",
    ),
    "pretrain-small-1024-fp32": ("the same, fp32", "같은 작업, fp32"),
    "pretrain-midi-4k-bf16": (
        "pre-train 6 layers × 384, 4,096 entries, bf16",
        "층 6개 × 384, 어휘 4,096개 사전 학습, bf16",
    ),
    "finetune-train-0.5-bf16": ("fine-tune at GPT-1's size, λ = 0.5, bf16", "GPT-1 크기 미세 조정, λ = 0.5, bf16"),
    "finetune-predict-bf16": ("predict classes at GPT-1's size, bf16", "GPT-1 크기로 분류 예측, bf16"),
    "finetune-default-128": (
        "`headwater finetune` at its defaults, 128 short rows",
        "기본 설정의 `headwater finetune`, 짧은 128행",
    ),
    "finetune-default-800": ("the same, 800 short rows", "같은 작업, 짧은 800행"),
    "serve-1-bf16": ("serve one client, bf16, streamed", "클라이언트 하나에 서빙, bf16, 스트리밍(streaming)"),
    "serve-8-bf16": ("serve 8 clients, bf16, streamed", "클라이언트 8개에 서빙, bf16, 스트리밍"),
    "serve-32-bf16": ("serve 32 clients, bf16, streamed", "클라이언트 32개에 서빙, bf16, 스트리밍"),
    **{
        f"{load}-{task}": (f"{english}: {step}", f"{korean}: {translated}")
        for load, (english, korean) in LOADS.items()
        for task, (step, translated) in TASKS.items()
    },
    "tokenizer-encode-one": (
        "encode 20 MB with GPT-2's vocabulary, one document",
        "GPT-2 어휘(vocabulary)로 20 MB 인코딩(encoding), 문서 하나",
    ),
    "tokenizer-encode-many": ("the same, many documents", "같은 작업, 문서 여러 개"),
    "tokenizer-train": ("learn 32,000 entries from 40 MB", "40 MB에서 어휘 32,000개 학습"),
}
# What a rule of Headwater chooses, against the other choices: each as a row's name, and in words.
CHOICES = {
    "auto-prefill": "precision, to read a prompt of 512 tokens",
    "auto-decode-1": "precision, to generate one text",
    "auto-decode-8": "precision, to generate eight texts",
    "choices-midi-4k-bf16": "backend, to pre-train 6 layers × 384",
}
SHORT = (
    "logits-512-bf16",
    "decode-1-bf16",
    "requests-bf16",
    "pretrain-small-1024-bf16",
    "finetune-train-0.5-bf16",
    "serve-32-bf16",
    "beside-1-train-pico",
    "tokenizer-encode-one",
    "tokenizer-train",
)
CLASSES = {
    "amx": ("AMX", "AMX"),
    "avx512_bf16": ("AVX-512 with bf16", "AVX-512(bf16)"),
    "avx512": ("AVX-512", "AVX-512"),
    "avx2_vnni": ("AVX2 with VNNI", "AVX2(VNNI)"),
    "avx2": ("AVX2", "AVX2"),
    "neon": ("Arm", "Arm"),
    "neon_bf16": ("Arm with bf16", "Arm(bf16)"),
}


# The figures of the front page: what a user gets, and from what they would use instead. In English and in Korean.
_HEADS = ("| what you get | here | instead |", "| 얻는 것 | 여기서는 | 대신 쓸 만한 것 |")
_SHAKESPEARE = (
    "[Own text](docs/tutorials/own-text.md#a-minute-on-a-small-text): bits per character on the last tenth of "
    "tiny Shakespeare after {seconds:.0f} s on two cores; lower is better",
    "[내 글](docs/tutorials/own-text.ko.md#작은-글로-1분-동안): 코어 두 개로 {seconds:.0f}초 학습한 뒤 "
    "tiny Shakespeare 마지막 10분의 1에서 글자당 비트 수(낮을수록 좋음)",
)
_MINI = ("`--from gpt2-mini`, pre-trained on other plays of his", "다른 희곡을 이미 읽은 `--from gpt2-mini`")
_SCRATCH = ("from scratch, {seconds:.0f} s", "처음부터 {seconds:.0f}초")
_LABELS = (
    "[Own labels](docs/tutorials/ten-minutes.md): accuracy on {name} from {rows} rows per class",
    "[내 라벨](docs/tutorials/ten-minutes.ko.md): 클래스마다 {rows}행으로 학습한 {name}의 정확도",
)
_SETS = {"sst2": ("SST-2", "SST-2"), "korean": ("Korean reviews", "한국어 후기")}
_PER_CLASS = (8, 64)
_PEERS = {"tfidf": ("TF-IDF", "TF-IDF"), "probe": ("a probe", "탐침"), "setfit": ("SetFit", "SetFit")}
_EXACT = "docs/guarantees.md#3-resume-is-exact"
_KILLED = (
    f"| [A killed run]({_EXACT}), resumed by the same command | the same weights, bit for bit | – |",
    f"| [강제로 종료된 학습]({_EXACT})을 같은 명령으로 이어서 하기 | 가중치가 비트 하나까지 같습니다 | – |",
)


def front(language: int, results: Path = RESULTS) -> str:
    """Return the table of the front page: own text, own labels, and a killed run. Figures are means over seeds.

    A row is left out until its benchmark (shakespeare.py, few_labels.py) has written its file into `results`.
    """
    lines = [_HEADS[language], "|---|---|---|"]
    if (path := results / "shakespeare.jsonl").is_file():
        runs = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        seconds = _mean(runs, "seconds", model="gpt2-mini")
        here = f"{_mean(runs, 'bits_per_character', model='gpt2-mini'):.2f} ({_MINI[language]}), "
        scratch = f"{_mean(runs, 'bits_per_character', model='gpt2-pico'):.2f}"
        here += f"{scratch} ({_SCRATCH[language].format(seconds=_mean(runs, 'seconds', model='gpt2-pico'))})"
        peer = f"{_mean(runs, 'bits_per_character', model='nanogpt'):.2f} (nanoGPT, "
        peer += f"{_mean(runs, 'seconds', model='nanogpt'):.0f}{(' s', '초')[language]})"
        lines.append(f"| {_SHAKESPEARE[language].format(seconds=seconds)} | {here} | {peer} |")
    if (path := results / "few_labels.json").is_file():
        found = json.loads(path.read_text("utf-8"))["results"]
        for name, rows in sorted({(one["set"], one["per_class"]) for one in found}, key=lambda one: one[::-1]):
            if name not in _SETS or rows not in _PER_CLASS:
                continue
            values = {
                method: _values(found, set=name, per_class=rows, method=method) for method in ("default", *_PEERS)
            }
            draws = set.intersection(*(set(one) for one in values.values() if one))  # that all of them have
            means = {method: statistics.mean(one[seed] for seed in draws) for method, one in values.items() if one}
            peers = ", ".join(
                f"{means[method]:.3f} ({shown})"
                for method, shown in ((one, names[language]) for one, names in _PEERS.items())
                if method in means
            )
            what = _LABELS[language].format(name=_SETS[name][language], rows=rows)
            lines.append(f"| {what} | {means['default']:.3f} | {peers} |")
    return "\n".join([*lines, _KILLED[language]])


def few_labels(results: Path = RESULTS) -> str:
    """Return the table of few_labels.py: means over seeds, and how many seeds each is of."""
    found = json.loads((results / "few_labels.json").read_text("utf-8"))["results"]
    methods = {"tfidf": "TF-IDF", "probe": "probe", "default": "default", "setfit": "SetFit"}
    lines = [f"| set | rows per class | {' | '.join(methods.values())} |", "|---|---|" + "---|" * len(methods)]
    for name, rows in sorted({(one["set"], one["per_class"]) for one in found}):
        values = [_values(found, set=name, per_class=rows, method=method) for method in methods]
        cells = [f"{statistics.mean(one.values()):.3f} ({len(one)})" if one else "–" for one in values]
        lines.append(f"| {name} | {rows} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _values(results: list[dict[str, Any]], **given: Any) -> dict[int, float]:
    """Return by seed the values of the results that have all these, without those that took too long."""
    return {
        one["seed"]: one["value"] for one in results if given.items() <= one.items() and one["value"] is not None
    }


def _mean(results: list[dict[str, Any]], key: str, **values: Any) -> float:
    return statistics.mean(one[key] for one in results if values.items() <= one.items())


def opened() -> dict[str, dict[str, Any]]:
    """Return the results of every class that was measured, best class first."""
    found = {name: RESULTS / f"{name}.json" for name in CLASSES}
    return {name: json.loads(path.read_text("utf-8")) for name, path in found.items() if path.is_file()}


def rows_of(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: row for one in results["measurements"].values() for name, row in one["rows"].items()}


def summary(language: int) -> str:
    """Return the table of `SHORT` and of each row in which a peer is faster: in English (0) or Korean (1)."""
    classes = opened()
    slower = {name for results in classes.values() for name, row in rows_of(results).items() if row["ratio"] < 1}
    names = [name for name in ROWS if name in SHORT or name in slower]
    heads = [CLASSES[name][language] for name in classes]
    first = ("what", "하는 일")[language]
    lines = [f"| {first} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name in names:
        cells = [rows_of(results).get(name) for results in classes.values()]
        if any(cells):
            first_words = {cell["best_peer"]: cell["best_peer"].partition(", ")[0] for cell in cells if cell}
            shown = [f"{cell['ratio']:.2f} × {first_words[cell['best_peer']]}" if cell else "–" for cell in cells]
            lines.append(f"| {_label(name, language)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _label(name: str, language: int) -> str:
    """Return a row's name; "the same" is written out where the row before is not shown."""
    text = ROWS[name][language]
    if not text.startswith(("the same", "같은 작업")):
        return text
    names = list(ROWS)
    whole = next(
        ROWS[other][language] for other in reversed(names[: names.index(name)]) if _starts(other, language)
    )
    return f"{whole.rpartition(', ')[0]}, {text.partition(', ')[2]}"


def _starts(name: str, language: int) -> bool:
    return not ROWS[name][language].startswith(("the same", "같은 작업"))


def details() -> str:
    """Return every row of every class with all peers, limits, machine, commit and date."""
    parts = []
    for name, results in opened().items():
        machine = results["machine"]
        limits = ", ".join(f"`{key}={value}`" for key, value in machine["limited"].items())
        parts.append(
            f"### {CLASSES[name][0]}\n\n{machine['processor']}, {machine['threads']} threads, "
            f"{machine['memory_gib']} GiB, {machine['system']}{', limited by ' + limits if limits else ''}. "
            "Nothing else ran.\n"
        )
        parts.append("| case | headwater | peers | times as fast as the best | of the limit | commit, date |")
        parts.append("|---|---|---|---|---|---|")
        measured = {row: one for one in results["measurements"].values() for row in one["rows"]}
        for row_name in ROWS:
            if row_name not in measured:
                continue
            one = measured[row_name]
            row = one["rows"][row_name]
            peers = "; ".join(f"{peer} {rate:,.{_digits(rate)}f}" for peer, rate in row["peers"].items())
            ratio = f"{row['ratio']:.2f}"
            ratio += f" ({row['lowest']:.2f} to {row['highest']:.2f})" if "lowest" in row else ""
            limit = f"{row['share_of_limit']:.0%} of {row['limit']}" if "share_of_limit" in row else "–"
            ours = f"{row['headwater']:,.{_digits(row['headwater'])}f} {row['unit']}"
            when = f"{one['commit'][:8]}, {one['date']}"
            parts.append(f"| {_label(row_name, 0)} | {ours} | {peers} | {ratio} | {limit} | {when} |")
        rows = rows_of(results)
        if any(name in rows for name in CHOICES):
            parts.append(
                "\n| what is chosen by itself | choice | rate | other choices | times as fast as the best other |"
            )
            parts.append("|---|---|---|---|---|")
        for choice, words in CHOICES.items():
            if choice in rows:
                row = rows[choice]
                others = "; ".join(f"{name} {rate:,.{_digits(rate)}f}" for name, rate in row["peers"].items())
                rate = f"{row['headwater']:,.{_digits(row['headwater'])}f} {row['unit']}"
                parts.append(f"| {words} | {row['chosen']} | {rate} | {others} | {row['ratio']:.2f} |")
        newest = max(results["measurements"].values(), key=lambda one: str(one["date"]))
        versions = ", ".join(f"{key} {value}" for key, value in sorted(newest["versions"].items()))
        parts.append(f"\nVersions: {versions}.\n")
    return "\n".join(parts).strip()


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


PAGES = {
    ROOT / "README.md": {"front": lambda: front(0), "speed": lambda: summary(0)},
    ROOT / "README.ko.md": {"front": lambda: front(1), "speed": lambda: summary(1)},
    ROOT / "benchmarks" / "README.md": {"results": details, "few-labels": few_labels},
}


def pages() -> dict[Path, str]:
    """Return the text of every page with its tables written again."""
    texts = {}
    for path, tables in PAGES.items():
        text = path.read_text(encoding="utf-8")
        for name, make in tables.items():
            pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
            if not pattern.search(text):
                sys.exit(f"{path} has no table <!-- {name} -->")
            text = pattern.sub(lambda match, make=make: f"{match[1]}\n{make()}\n\n{match[2]}", text)
        texts[path] = text
    return texts


def write() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def check() -> str | None:
    """Return what is wrong, or None."""
    wrong = [str(p.relative_to(ROOT)) for p, text in pages().items() if p.read_text(encoding="utf-8") != text]
    return f"{', '.join(wrong)} differ from benchmarks/results: run make format" if wrong else None
