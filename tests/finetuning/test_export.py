"""Fine-tuned folders in transformers: equal logits, or a refusal with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.cli.main import main
from headwater.finetuning import FinetuneConfig, FineTuned, Labels, Raw, TaskName
from headwater.finetuning.learning.prepare import prepare_base
from headwater.finetuning.model.fine_tuned import build_task_model
from headwater.model import build_model, preset
from headwater.tokenizer import Tokenizer

from .test_masked_base import WORDPIECES

NAMES = ["no", "yes", "maybe"]
TEXTS = [("the film was great",), ("dull",), ("a story and a plot of the film",)]
PAIRS = [("the film", "was great"), ("dull", "a lovely story"), ("a plot of the film", "the")]


def tuned(
    folder: Path, name: str, tokenizer: Tokenizer, task: TaskName = "classify", frozen: str | None = None
) -> Path:
    """A fine-tuned folder of random weights whose biases are not 0, as training leaves them."""
    tokenizer = tokenizer.with_mask() if name == "bert-nano" else tokenizer
    shape = {"vocabulary": tokenizer.vocabulary_size, "context": 48, "width": 32}
    shape |= {"units": 40} if "lstm" in name else {"layers": 2, "heads": 2}
    base, extended = prepare_base(FinetuneConfig(), build_model(preset(name, **shape), seed=1), tokenizer)
    labels = Labels(target="answer") if task == "choice" else Labels(target="class", names=NAMES)
    model = build_task_model(base, extended, task, labels.outputs, dropout=0.1, frozen=frozen)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    folder.mkdir()
    FineTuned(model.eval(), extended, task, labels, FinetuneConfig().columns).save(folder)
    return folder


@pytest.fixture
def wordpiece(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDPIECES) + "\n", encoding="utf-8")
    return Tokenizer.load(tmp_path)


@pytest.mark.parametrize("task", ["classify", "entail"])
@pytest.mark.parametrize("name", ["gpt2-pico", "gpt1-nano", "bert-base"])
def test_transformers_gives_equal_logits(
    tmp_path: Path, tokenizer: Tokenizer, wordpiece: Tokenizer, name: str, task: TaskName
) -> None:
    transformers = pytest.importorskip("transformers")
    source = tuned(tmp_path / "tuned", name, wordpiece if name == "bert-base" else tokenizer, task)
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0
    ours = FineTuned.load(source)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert type(theirs).__name__.endswith("ForSequenceClassification")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = TEXTS if task == "classify" else PAIRS
    encoded = reader(*(list(part) for part in zip(*rows, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**encoded).logits
    shares = [list(one.probabilities.values()) for one in ours.predict(Raw(row) for row in rows)]
    assert torch.allclose(logits.softmax(dim=1), torch.tensor(shares), atol=1e-5)
    assert [theirs.config.id2label[index] for index in range(len(NAMES))] == NAMES


@pytest.mark.parametrize(
    ("name", "task", "frozen", "reason"),
    [
        ("gpt2-pico", "similarity", None, "both orders"),
        ("gpt2-pico", "choice", None, "one sequence for each answer"),
        ("gpt2-pico", "classify", "pooling", "mixture of layers"),
        ("lstm-nano", "classify", None, "no architecture for it"),
        ("bert-nano", "classify", None, "no architecture for it"),
    ],
)
def test_export_without_a_class_in_transformers_is_refused(
    tmp_path: Path,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
    name: str,
    task: TaskName,
    frozen: str | None,
    reason: str,
) -> None:
    source = tuned(tmp_path / "tuned", name, tokenizer, task, frozen)
    assert main(["convert", str(source), str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
