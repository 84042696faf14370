"""Every example runs: each page's files in their order in one folder, as a reader runs them, at small sizes.

`sizes` are replaced in the text before it runs, each must occur, and nothing else is changed. What needs another
machine, a network or a cluster is named where it is replaced.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from headwater.cli.main import LazyGroup, main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in {".sh", ".slurm"})

# Every pre-training of an example, made small.
TINY = "headwater pretrain " + " ".join(
    f"--set {key}={value}"
    for key, value in {
        "epochs": 0.02,
        "batch_size": 4,
        "micro_batch": 2,
        "context": 32,
        "precision": "fp32",
        "validate_every": 4,
        "checkpoint_every": 4,
        "model.width": 32,
        "model.heads": 2,
        "model.layers": 2,
    }.items()
)
SHORT = {"--task classify": "--task classify --set steps=3"}
# A server as the last command of a script: stopped when it answers, and its status is the script's.
SERVED_UNTIL_HEALTHY = (
    "(headwater serve --model run) & curl -sf --retry 100 --retry-all-errors --retry-delay 1 "
    "http://127.0.0.1:8000/health; kill $!; wait $!"
)


@dataclass
class Journey:
    """Files in order; one that ends in "&" runs until the others are done, one in "×2" on two machines at once."""

    files: tuple[str, ...]
    sizes: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # packages and programs
    needs_data: bool = False
    in_repository: bool = False
    tools: dict[str, str] = field(default_factory=dict)  # stand-ins for a cluster's programs


STAND_INS = {
    "srun": 'exec "$@"',
    "scontrol": "echo 127.0.0.1",
}

JOURNEYS = {
    "own-text": Journey(
        (
            *(
                f"own-text/{name}.sh"
                for name in ("gather", "tokenizer", "pack", "plan", "train", "generate", "score")
            ),
            "own-text/use.py",
            "own-text/minute.sh",
            "own-text/quickstart.sh",
        ),
        {
            "headwater pretrain --from": "headwater  pretrain --from",
            "--set batch_size=16 --set steps=72": "--set batch_size=2 --set steps=2",
            "--vocab-size 4096": "--vocab-size 400",
            " --set epochs=8": "",
            "--max-tokens 60": "--max-tokens 20",
            "max_tokens=40": "max_tokens=20",
            "--minutes 20": "--minutes 0.02",
        },
    ),
    "own-labels": Journey(
        (
            *(f"own-labels/{name}.sh" for name in ("show", "finetune", "scratch", "predict")),
            "own-labels/threshold.sh",
            "own-labels/threshold.py",
            *(f"own-labels/{name}.sh" for name in ("table", "several", "further")),
            *(f"own-labels/{name}.py" for name in ("classifier", "scikit", "other_inputs")),
        ),
        {
            **SHORT,
            'run/model").fit': 'run/model", batch_size=64).fit',
            "all-reviews.csv": "reviews.csv",
            "new-rows.csv": "reviews.csv",
        },
        needs=("sklearn",),
    ),
    "ten-minutes": Journey(
        tuple(f"ten-minutes/{name}" for name in ("look.sh", "cross_validation.py", "train.sh", "next_week.sh")),
        {
            **SHORT,
            'Classifier(base="gpt2-mini")': 'Classifier(base="gpt2-mini", epochs=0.1)',
            "StratifiedGroupKFold(3,": "StratifiedGroupKFold(2,",
            "this-week.csv": "reviews.csv",
        },
        needs=("sklearn",),
    ),
    "ten-minutes-ko": Journey(
        tuple(f"ten-minutes/ko_{name}" for name in ("look.sh", "cross_validation.py", "train.sh", "next_week.sh")),
        {
            **SHORT,
            'Classifier(base="gpt2-mini-ko")': 'Classifier(base="gpt2-mini-ko", epochs=0.1)',
            "StratifiedGroupKFold(3,": "StratifiedGroupKFold(2,",
            "새_후기.csv": "new-reviews.csv",
            "이번_주.csv": "reviews.csv",
            '"후기.csv"': '"reviews.csv"',
            " 후기.csv": " reviews.csv",
            "--text 글 --label 라벨": "--text review --label stars",
            '줄["글"]': '줄["review"]',
            '줄["라벨"]': '줄["stars"]',
        },
        needs=("sklearn",),
    ),
    "ten-minutes-serve": Journey(
        ("ten-minutes/serve.sh&", "ten-minutes/ask.sh"),
        {"reviews=reviews": "reviews=fine-tuned"},
        needs=("fastapi", "curl"),
    ),
    "ten-minutes-serve-ko": Journey(
        ("ten-minutes/ko_serve.sh&", "ten-minutes/ko_ask.sh"),
        {"후기=분류기": "후기=fine-tuned"},
        needs=("fastapi", "curl"),
    ),
    "papers": Journey(
        (
            *(f"papers/{name}.sh" for name in ("list", "convert", "zero_shot", "sets", "recipe", "ablations")),
            "papers/follow.py",
            *(f"papers/{name}.sh" for name in ("overlap", "reproduce")),
        ),
        {
            "downloads/gpt-2/124M": "$HEADWATER_DATA/golden/gpt2-release-toy",
            "downloads/finetune-transformer-lm/model": "--heads 3 $HEADWATER_DATA/golden/gpt1-release-toy",
            "--model gpt2-small --tasks": "--model quickstart/run/model --limit 2 --tasks",
            "--model gpt1 --data": "--model quickstart/run/model --limit 12 --set steps=2 --data",
            "--test test.tsv": "--test test.tsv --set steps=2",
            "(config, here": '(config.model_copy(update={"steps": 4, "batch_size": 4}), here',
            # Experiments have tests of their own, in papers/tests.
            "headwater reproduce gpt1_perplexity": "true",
        },
        needs_data=True,
    ),
    "serve": Journey(
        ("serve/serve.sh&", "serve/ask.sh", "serve/client.py"),
        needs=("fastapi", "openai", "curl"),
    ),
    "serve-keys": Journey(("serve/keys.sh&", "serve/with_key.sh"), needs=("fastapi", "curl")),
    "other-tools": Journey(
        ("other-tools/lora.py", "other-tools/generate.sh", "other-tools/gguf.sh"),
        needs=("peft", "transformers", "gguf"),
    ),
    "serving": Journey(("serving/serve.sh&", "readme/ask.sh", "readme/ko_ask.sh"), needs=("fastapi", "curl")),
    # The texts of the lists are not available; the cards of real runs are tested in tests/test_ship.py.
    "models": Journey(
        (
            "models/gather.sh",
            "models/corpus.sh",
            "models/korean.sh",
            "models/train.sh",
            "models/ship.sh",
        ),
        {
            "apt-get download": "true",
            "' recipes/texts/": f"' {ROOT}/recipes/texts/",  # the lists are read; what they name is not fetched
            "git clone --bare": "true",
            "python tools/gather.py recipes/texts/korean.toml --data data --packages packages-ko --out text-ko": (
                "mkdir -p text-ko/prose/a text-ko/documentation/b && cp my_texts/* text-ko/prose/a "
                "&& cp my_texts/0.txt text-ko/documentation/b"
            ),
            "--vocab-size 5120": "--vocab-size 400",
            'languages=["ko"]': 'languages=["en"]',
            "--set language=true": "--set language=false",
            "python tools/gather.py recipes/texts/english.toml --data data --packages packages --out text": (
                "mkdir -p text/books/a text/documentation/b text/prose/c && cp my_texts/* text/books/a "
                "&& cp my_texts/* text/documentation/b && cp my_texts/0.txt text/prose/c"
            ),
            "--recipe webtext": "--recipe plain",
            "--recipe books": "--recipe plain",
            " --set wikipedia=false --set near_duplicates=true": "",
            "--vocab-size 4096": "--vocab-size 400",
            "headwater pretrain gpt2-mini": "headwater  pretrain gpt2-pico",  # keeps its own updates
            "steps=1000": "steps=2",
            "warmup_steps=": "batch_size=2 --set warmup_steps=",
            "python tools/ship.py": "true",
        },
    ),
    "cluster": Journey(
        ("cluster/try.sh", "pretraining/one_machine.sh"),
        {" --set steps=50": "", "--nproc-per-node=4": "--nproc-per-node=2"},
    ),
    "machines": Journey(
        ("pretraining/two_machines.sh×2",), {"--nproc-per-node=8": "--nproc-per-node=1", "node0": "127.0.0.1"}
    ),
    "slurm": Journey(("pretraining/job.slurm",), {"--nproc-per-node=8": "--nproc-per-node=2"}, tools=STAND_INS),
    "gpu": Journey(
        ("gpu/tokens.sh", "gpu/train.sh", "gpu/score.sh"),
        {
            "fineweb-edu/": "my_texts/",
            "--workers 16": "--workers 2",
            "--nproc-per-node=8": "--nproc-per-node=2",
            "headwater evaluate": "true headwater evaluate",  # the set is not available
        },
    ),
    "shard": Journey(("pretraining/shard.sh",), {"--nproc-per-node=8": "--nproc-per-node=2"}),
    "corpora": Journey(("cluster/corpus.sh",), {"--workers 16": "--workers 2"}, needs=("resiliparse",)),
    "slurm-corpora": Journey(
        ("cluster/corpus.slurm",),
        {
            "ray symmetric-run --address $head --min-nodes $SLURM_NNODES --": "",
            "--engine ray --address $head --workers 128": "--workers 2",
        },
        needs=("resiliparse",),
        tools=STAND_INS,
    ),
    "ray": Journey(("cluster/ray_corpus.sh",), {" --address node0:6379": ""}, needs=("resiliparse", "ray")),
    "pretraining": Journey(
        ("pretraining/run.sh", "pretraining/resume.sh", "pretraining/time_of_an_update.py"),
        {" --set steps=2000": "", 'read_recipe("gpt2-mini")': 'read_recipe("gpt2-pico")'},
    ),
    "changed": Journey(
        ("pretraining/watch.sh", "pretraining/change.sh"),
        {
            "--set steps=2000": "",
            "sample_every=200": "sample_every=1",
            "--set steps=3000": "--set steps=20",
            "@3000": "@20",
        }
        | {"pretrain watched": " pretrain watched", "pretrain --from": " pretrain --from", "steps=500": "steps=1"},
    ),
    "continue": Journey(
        ("pretraining/continue.sh",),
        {
            "headwater pretrain": "headwater  pretrain",  # keeps the model's own shape, which TINY changes
            "steps=500": "steps=1 --set batch_size=2",
        },
    ),
    "corpus": Journey(("corpus/own_text.py",)),
    "webtext": Journey(
        ("corpus/webtext.sh",),
        {
            "RS_2017-*.zst": "$HEADWATER_DATA/webtext-pipeline/reddit/RS_v2_2005-06.xz",
            # The network: pages/ is there already. Fetching has tests of its own with a site on this machine.
            "headwater corpus fetch": "true",
            "--workers 8": "--workers 2",
            "--vocab-size 50257": "--vocab-size 300",
        },
        needs=("resiliparse",),
        needs_data=True,
    ),
    "evaluation": Journey(
        ("evaluation/zero_shot.sh",),
        {"headwater evaluate --model": "headwater evaluate --limit 2 --model"},
        needs_data=True,
    ),
    "tokenizers": Journey(
        ("tokenizers/train.sh", "tokenizers/korean.sh"),
        {"SOURCE": "corpus", "--vocab-size 32000": "--vocab-size 2000"},
        needs_data=True,
    ),
    "readme": Journey(
        ("readme/first.sh", "readme/flow.sh", "readme/use.py"),
        {
            "--vocab-size 4096": "--vocab-size 400",
            "max_tokens=40": "max_tokens=4",
            "headwater serve --model run": SERVED_UNTIL_HEALTHY,
        },
        needs=("fastapi", "curl"),
    ),
    "korean": Journey(
        (
            *(
                "korean/tokenizer.sh",
                "korean/model.sh",
                "readme/ko_first.sh",
                "readme/ko_flow.sh",
                "readme/ko_use.py",
                "korean/classifier.py",
            ),
            *("korean/sentiment.py", "korean/finetune.sh"),
        ),
        {
            **SHORT,
            'base="gpt2-mini-ko"': 'base="gpt2-mini-ko", epochs=0.2',
            '내_모델/run/model").fit': '내_모델/run/model", epochs=0.2).fit',
            "--vocab-size 16000": "--vocab-size 800",
            "--vocab-size 8192": "--vocab-size 800",
            "max_tokens=40": "max_tokens=4",
            "headwater serve --model run": SERVED_UNTIL_HEALTHY,
        },
        needs=("fastapi", "curl"),
        needs_data=True,
    ),
    "contributing": Journey(
        ("contributing/setup.sh",), {"make": "make --dry-run"}, in_repository=True, needs=("make",)
    ),
    "add-a-task": Journey(
        ("extending/task_data.py", "extending/task_try.sh", "extending/task_try.py"),
        {
            "from verbs import": "__import__('sys').path.append('examples/extending')\nfrom verbs import"
        },  # as at its path
        in_repository=True,
    ),
    "add-a-command": Journey(
        ("extending/command.sh",),
        {"--no-build-isolation examples": "--no-build-isolation --target $PWD/src examples"},
        in_repository=True,
    ),
    "add-a-step": Journey(
        ("extending/step.sh", "extending/step_try.py"),
        {"--no-build-isolation examples": "--no-build-isolation --target $PWD/src examples"},
        in_repository=True,
    ),
    "add-an-analysis": Journey(("extending/surest.py",), {'run/model").fit': 'run/model", batch_size=64).fit'}),
    "add-a-preset": Journey(
        ("extending/preset.sh", "extending/preset_try.sh"), in_repository=True, needs=("patch",)
    ),
}
# A fresh installation has a job of its own in continuous integration, and the README's is the Makefile's.
ELSEWHERE = {
    "readme/begin.sh",  # tests/quickstart/test_quickstart.py runs the command
    "readme/ko_begin.sh",
    "readme/ko_quickstart.sh",
    "install/install.sh",
    "install/activate.sh",
    "install/papers.sh",
    "install/wheel.sh",
    "install/licences.sh",  # tests/packaging
    "contributing/campaign.sh",  # takes hours
    "serving/serve_two.sh",  # both halves stand in other journeys
    "serving/serve_for_page.sh",  # tests/serve
    "operating/add_key.sh",  # tests/serve/test_operating.py
    "operating/first_model.sh",
    "operating/install.sh",  # as root
    "operating/proxy.sh",
    "operating/start.sh",
    "operating/swap_model.sh",
    "operating/swap_program.sh",
    "operating/who_uses.sh",
    "serving/open_page.sh",
    "serving/client.py",
    "serving/curl.sh",
    "other-tools/llama.sh",  # tried by hand with llama.cpp; the other two need an account or a program
    "other-tools/ollama.sh",
    "other-tools/upload.sh",
    "pencil.py",  # test_pencil.py
    "tokenizers/encode.py",  # tests/tokenizer
    "tokenizers/other_libraries.py",
}


def test_every_example_that_runs_has_its_journey() -> None:
    running = {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in {".sh", ".py", ".slurm"}
    }
    given = {name.rstrip("&").removesuffix("×2") for journey in JOURNEYS.values() for name in journey.files}
    copied = {
        "extending/command/headwater_count.py",
        "extending/verbs.py",
        "extending/step/headwater_shouting.py",
    }
    reading = {name for name in running if name.startswith("reading/")}  # test_reading.py
    assert running == given | ELSEWHERE | copied | reading


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_commands_exist_with_their_options(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for call in re.findall(r"(?:^|-m )headwater (?!--)(.*)$", text, re.M):
        words = shlex.split(call.split("|")[0], comments=True)
        if words[0] == "count":  # of the page that adds this command
            continue
        command = LazyGroup(name="headwater").get_command(None, words[0])
        assert command is not None, call
        if hasattr(command, "commands"):
            command = command.commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, call


SEPARATOR = "\n<|endoftext|>\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """What the pages take as given: a text, a quickstart of it, tables, and pages of the web."""
    folder = tmp_path_factory.mktemp("home")
    texts = folder / "my_texts"
    texts.mkdir()
    sentences = sample_text.replace(SEPARATOR, " ").split(". ")
    for name, letters in (("0", "aeiou"), ("1", "eioua")):  # two sources, of many documents each
        said = [one.translate(str.maketrans("aeiou", letters)) for one in (*sentences, *sentences[::-1])]
        documents = [". ".join(said[start : start + 10]) for start in range(0, len(said), 10)]
        (texts / f"{name}.txt").write_text(SEPARATOR.join(documents), "utf-8")
    out = folder / "quickstart"
    assert main(["quickstart", "--minutes", "0.03", str(texts), "--out", str(out)]) == 0
    rows = [
        f"{sentence},{'good' if number % 2 else 'bad'}"
        for number, sentence in enumerate(sample_text.split(".")[:80])
    ]
    (folder / "reviews.csv").write_text("review,stars\n" + "\n".join(row.strip() for row in rows) + "\n", "utf-8")
    (folder / "new-reviews.csv").write_text("review\nA new one\nAnd another\n", "utf-8")
    topics = [f"Review number {n},{n % 2},{n // 2 % 2},{n // 4 % 2}" for n in range(40)]
    (folder / "topics.csv").write_text("\n".join(["review,delivery,price,quality", *topics, ""]), "utf-8")
    for name in ("train", "test"):
        table = "\n".join(row.replace(",", "\t").strip() for row in rows)
        (folder / f"{name}.tsv").write_text(f"text\tlabel\n{table}\n", "utf-8")
    (folder / "pages").mkdir()
    for number in range(20):
        (folder / "pages" / f"{number}.html").write_text(page(number), encoding="utf-8")
    for name in ("corpus", "tokenizer", "tokens"):
        shutil.copytree(out / name, folder / "made" / name)
    for name in ("small", "other"):
        shutil.copytree(out / "run", folder / "runs" / name)
    shutil.copytree(out / "fine-tuned" / "source", folder / "fine-tuned")
    return folder


def page(number: int) -> str:
    """A page of plain English that the rules for prose keep, unlike the others."""
    draw = random.Random(number)
    who = ["the miller", "an old woman", "my brother", "the teacher", "a stranger", "the boy", "our neighbour"]
    did = ["had seen", "wrote about", "never forgot", "was looking for", "spoke of", "carried", "asked for"]
    what = [
        "the bell",
        "a letter",
        "the red boat",
        "that winter",
        "the bridge",
        "a stone",
        "the long road",
        "bread",
    ]
    where = [
        "by the river",
        "in the church",
        "behind the hill",
        "at the market",
        "with the others",
        "on the way home",
    ]
    when = [
        "before the war",
        "in the spring",
        "when the rain came",
        "after the harvest",
        "that evening",
        "as a child",
    ]

    def sentence() -> str:
        halves = (
            f"{person} {draw.choice(did)} {draw.choice(what)} {draw.choice(where)}"
            for person in draw.sample(who, 2)
        )
        words = f"{draw.choice(when)} {', and '.join(halves)}"
        return words.capitalize() + "."

    paragraphs = "".join(f"<p>{' '.join(sentence() for _ in range(6))}</p>" for _ in range(6))
    return f"<html><body><article><h1>The river, part {number}</h1>{paragraphs}</article></body></html>"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the examples are for a POSIX shell")
@pytest.mark.parametrize("name", sorted(JOURNEYS))
def test_the_examples_run(name: str, home: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    journey = JOURNEYS[name]
    for need in journey.needs:
        if shutil.which(need) is None:
            pytest.importorskip(need)
    if journey.needs_data:
        request.getfixturevalue("data")
    folder = tmp_path / "here"
    furnish(folder, home, name, journey)
    tools = tmp_path / "bin"
    tools.mkdir()
    for program, script in journey.tools.items():
        (tools / program).write_text(f"#!/bin/bash\n{script}\n")
        (tools / program).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "COLUMNS": "100"}
    if journey.tools:
        environment |= {"SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "node0"}
    if journey.in_repository:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), str(folder / "papers" / "src")])
    port = free_port()
    sizes = {
        **journey.sizes,
        "headwater pretrain": TINY,
        "headwater serve": f"exec headwater serve --port {port}",
        "127.0.0.1:8000": f"127.0.0.1:{port}",
        "127.0.0.1:29500": f"127.0.0.1:{port}",
    } | journey.sizes  # the order of the first, the values of the journey
    used: set[str] = set()
    try:
        with servers(journey, folder, sizes, used, environment, port):
            for file in journey.files:
                if file.endswith("&"):
                    continue
                copies = 2 if file.endswith("×2") else 1
                command = prepared(file.removesuffix("×2"), folder, sizes, used)
                running = [start(command, folder, environment) for _ in range(copies)]
                for process in running:
                    output, _ = process.communicate(timeout=900)
                    assert process.returncode == 0, f"{file}:\n{output}"
                    assert "Traceback" not in output, f"{file}:\n{output}"
    finally:
        missing = journey.sizes.keys() - used
    assert not missing, f"no example of {name} says {missing}"


def furnish(folder: Path, home: Path, name: str, journey: Journey) -> None:
    """The folder in which a reader of that page stands."""
    if journey.in_repository:
        left_out = shutil.ignore_patterns(".*", "dist", "__pycache__", "*.egg-info", "runs")
        shutil.copytree(ROOT, folder, ignore=left_out)
        for made in ("build", "quickstart"):  # not by a pattern: src/headwater/quickstart is a package
            shutil.rmtree(folder / made, ignore_errors=True)
        (folder / "quickstart").symlink_to(home / "quickstart")
        return
    folder.mkdir()
    given = [
        "my_texts",
        "quickstart",
        "reviews.csv",
        "new-reviews.csv",
        "topics.csv",
        "train.tsv",
        "test.tsv",
        "pages",
        "runs",
    ]
    for entry in (*given, "fine-tuned"):
        (folder / entry).symlink_to(home / entry)
    if journey.needs_data:
        furnish_with_korean(folder, home)
    written = "\n".join((EXAMPLES / file.rstrip("&×2")).read_text(encoding="utf-8") for file in journey.files)
    for entry in ("corpus", "tokenizer", "tokens"):
        if not re.search(rf"--out {entry}\b|build_corpus\(.*Path\(\"{entry}\"\)", written):
            (folder / entry).symlink_to(home / "made" / entry)


def furnish_with_korean(folder: Path, home: Path) -> None:
    """The Korean README's folders: a text, a part of it to compare on, a model, and a table of sentences."""
    korean = Path(os.environ["HEADWATER_DATA"]) / "train-text" / "korean"
    text = (korean / "kolaw_constitution.txt").read_text(encoding="utf-8")
    (folder / "내_글").mkdir()
    (folder / "내_글" / "헌법.txt").write_text(text[2_000:], encoding="utf-8")
    (folder / "검증.txt").write_text(text[:2_000], encoding="utf-8")
    (folder / "내_모델").symlink_to(home / "quickstart")
    reviews = (korean / "nsmc_reviews.txt").read_text(encoding="utf-8").splitlines()
    (folder / "nsmc_reviews.txt").write_text("\n".join(reviews[::60]), encoding="utf-8")
    lines = (korean / "ChatbotData.csv").read_text(encoding="utf-8").splitlines()
    (folder / "ChatbotData.csv").write_text("\n".join(lines[:1] + lines[1::40]) + "\n", encoding="utf-8")


def prepared(file: str, folder: Path, sizes: dict[str, str], used: set[str]) -> list[str]:
    """The example at its small size, in a file of its own, and the command that runs it."""
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    for large, small in sizes.items():
        if large in text:
            used.add(large)
            text = text.replace(large, small)
    script = folder / f".{file.replace('/', '-')}"
    script.write_text(text, encoding="utf-8")
    return [sys.executable, str(script)] if file.endswith(".py") else ["bash", "-euo", "pipefail", str(script)]


def start(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@contextmanager
def servers(
    journey: Journey, folder: Path, sizes: dict[str, str], used: set[str], environment: dict[str, str], port: str
) -> Iterator[None]:
    """What runs until the others are done: started, waited for, interrupted, and ended with status 0."""
    files = [file.removesuffix("&") for file in journey.files if file.endswith("&")]
    running = [start(prepared(file, folder, sizes, used), folder, environment) for file in files]
    try:
        for process in running:
            await_port(process, int(port))
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            try:
                output, _ = process.communicate(timeout=600)
            finally:
                process.kill()
            assert process.returncode == 0, output


def await_port(process: subprocess.Popen[str], port: int) -> None:
    """Until the server answers; it listens before it has loaded."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for _ in range(1_200):
            assert process.poll() is None, process.communicate()[0]
            try:
                if client.get("/health", timeout=600).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
    raise AssertionError("the server does not answer")
