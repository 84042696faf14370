"""A library leaves the process as it is; the command line prepares its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = """
import gc, os, random, signal, sys
import numpy, sklearn, torch, torch._dynamo  # what these set as they are imported is theirs

def state():
    flags = torch.backends.mkldnn
    return {
        "environment": sorted(os.environ.items()),
        "garbage": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "onednn": (flags.enabled, flags.deterministic, flags.allow_tf32),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "random (torch)": hash(torch.get_rng_state().numpy().tobytes()),
        "random (Python)": hash(random.getstate()),
        "random (NumPy)": hash(numpy.random.get_state()[1].tobytes()),
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }

before = state()
import headwater as hw
from headwater.model import build_model, preset
from headwater.inference.language_model import LanguageModel
from headwater.pretraining.objectives import l1
from headwater.pretraining.tokens.sampler import TokenBatch
from headwater.serve import ServeConfig, serve
from headwater.training import TrainConfig, Trainer

tokenizer = hw.Tokenizer.train(["the river runs "] * 9, vocab_size=270, special_tokens=["<|endoftext|>"])
config = preset("gpt1-nano", vocabulary=tokenizer.vocabulary_size, context=32)
LanguageModel(build_model(config, seed=1), tokenizer).save("model")
lm = hw.load("model", precision="auto")
lm.generate("the", max_tokens=3, seed=1)
lm.score([("the", " river")])
ids = torch.zeros(2, 8, dtype=torch.int64)
trainer = Trainer(lm.model, l1, TrainConfig(steps=2))
trainer.update([TokenBatch(ids, ids, torch.full(ids.shape, 1 / 16))])
texts = [f"{word} {number}" for number in range(8) for word in ("river", "runs")]
hw.Classifier(base=lm, epochs=1).fit(texts, ["a", "b"] * 8).predict(["a river"])
serve(ServeConfig(models=["model"], port=0), ready=lambda address: signal.raise_signal(signal.SIGTERM))
after = state()
for name, value in before.items():
    assert after[name] == value, (name, value, after[name])
"""


def test_using_the_library_changes_nothing_in_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


PREPARED = """
import gc, os, sys
from headwater.cli.main import main
sys.argv = ["headwater", "--version"]
main()
print(os.environ["OMP_NUM_THREADS"], os.environ["LRU_CACHE_CAPACITY"], gc.get_threshold()[0])
"""


UNENCODABLE = """
import sys
from headwater.cli.main import main
sys.argv = ["headwater", "lineage", "\\ud55c\\udcff"]
print(main())
print(sys.argv[-1])
"""


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8:strict"])
def test_output_is_utf8_in_every_locale(encoding: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", UNENCODABLE], env=environment, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["1", "한\\udcff"]
    assert done.stderr.decode().startswith("Error: 한\\udcff ")


@pytest.mark.parametrize("given", ["", "7"])
def test_the_command_line_keeps_the_users_environment(given: str) -> None:
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment = own | ({"OMP_NUM_THREADS": given} if given else {})
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], env=environment, capture_output=True, text=True, check=True
    )
    threads, shapes, garbage = done.stdout.splitlines()[-1].split()
    assert threads == (given or threads)
    assert int(threads) >= 1
    assert (shapes, garbage) == ("256", "10000")


INTERRUPTED = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
from headwater.cli.main import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["headwater", "--version"]
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_while_the_process_exits_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


WAITS = """
from headwater.cli.process import prepare
prepare()
import torch
"""


@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux")
@pytest.mark.parametrize(
    ("own", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "0")]
)
def test_waiting_threads_of_torch_give_way(own: dict[str, str], spins: str) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = rest | own | {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run(
        [sys.executable, "-c", WAITS], env=environment, capture_output=True, text=True, check=True
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("command", ["--help", "serve --help", "evaluate --list", "lineage missing"])
def test_closed_streams_are_not_a_failure(command: str) -> None:
    line = f"exec {sys.executable} -m headwater {command} >&- <&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == (1 if "missing" in command else 0)
    assert "Traceback" not in done.stderr
