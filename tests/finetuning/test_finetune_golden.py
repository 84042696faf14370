"""Six updates of OpenAI's own fine-tuning program, repeated: losses, logits and parameters (golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwater.finetuning import Encoded, FinetuneConfig, Labels, TaskModel
from headwater.finetuning.model.batches import collate
from headwater.finetuning.model.heads import class_loss, l3, language_model_loss
from headwater.model import ModelConfig, build_model, preset
from headwater.training import Trainer

BLOCK = {
    "attn/c_attn": "attention.query_key_value",
    "attn/c_proj": "attention.projection",
    "mlp/c_fc": "mlp.expand",
    "mlp/c_proj": "mlp.contract",
    "ln_1": "norm_1",
    "ln_2": "norm_2",
}
PART = {"w": "weight", "g": "weight", "b": "bias"}


def our_parameters(names: list[str], arrays: list[np.ndarray], rows: int) -> dict[str, torch.Tensor]:
    """The original's parameters under our names: one matrix split in two, maps transposed."""
    ours = {}
    for name, array in zip(names, arrays, strict=True):
        tensor = torch.from_numpy(array)
        path = name.removeprefix("model/").removesuffix(":0")
        if path == "we":
            ours["model.tokens.weight"], ours["model.positions.weight"] = tensor[:rows], tensor[rows:]
            continue
        place, _, part = path.rpartition("/")
        if part == "w":
            tensor = tensor.reshape(tensor.shape[-2:]).t()
        if place == "clf":
            ours[f"head.{PART[part]}"] = tensor
            continue
        layer, _, inside = place.partition("/")
        ours[f"model.blocks.{layer[1:]}.{BLOCK[inside]}.{PART[part]}"] = tensor
    return ours


def encoded_update(ids: np.ndarray, mask: np.ndarray, labels: np.ndarray) -> Encoded:
    lengths = mask.sum(axis=-1).astype(int).ravel()
    flat = np.concatenate([row[:n] for row, n in zip(ids.reshape(len(lengths), -1), lengths, strict=True)])
    return Encoded(
        flat.astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.arange(len(labels) + 1) * ids.shape[1],
        labels.astype(np.float64),
    )


def original_shape(config: dict[str, Any], dropout: float = 0.0) -> ModelConfig:
    """The original program's model, as the default of `faithful` makes it."""
    return preset(
        "gpt1",
        vocabulary=config["n_vocab"] + config["n_special"],
        context=config["n_ctx"],
        layers=config["n_layer"],
        width=config["n_embd"],
        heads=config["n_head"],
        dropout=dropout,
    )


@pytest.mark.parametrize("parts", [1, 2], ids=["one micro-batch", "two micro-batches"])
def test_six_updates_equal_the_original_program(golden_data: Path, parts: int) -> None:
    golden: Any = np.load(golden_data / "golden" / "gpt1_finetune_steps.npz")
    config = json.loads(str(golden["config"]))
    names = [str(name) for name in golden["names"]]
    rows = config["n_vocab"] + config["n_special"]
    base = build_model(original_shape(config), seed=0)
    model = TaskModel(base, "choice", 1, dropout=config["clf_pdrop"])
    start = [golden[f"init_{i}"] for i in range(len(names))]
    model.load_state_dict(our_parameters(names, start, rows))
    settings = FinetuneConfig(
        task="choice",
        learning_rate=config["lr"],
        warmup=config["lr_warmup"],
        lambda_lm=config["lm_coef"],
        precision="fp32",
        steps=config["n_updates_total"],
    )
    trainer = Trainer(model, l3(config["lm_coef"]), settings.resolve(base.config, examples=4))
    labels = Labels(target="answer")
    for update in range(6):
        encoded = encoded_update(golden[f"x_{update}"][..., 0], golden[f"m_{update}"], golden[f"y_{update}"])
        targets = labels.probabilities(encoded)
        whole = collate(encoded, range(4), targets, update_examples=4, update_sequences=8)
        with torch.no_grad():
            output = model(whole, with_matrix=True)
            # Both answers share the bias, which moves by noise: their difference is what counts.
            theirs = torch.from_numpy(golden[f"logits_{update}"])
            torch.testing.assert_close(output.logits.diff(), theirs.diff(), atol=1e-4, rtol=0)
            assert float(class_loss(output.logits, whole)) == pytest.approx(
                float(golden[f"clf_{update}"].mean()), abs=1e-4
            )
            assert float(language_model_loss(output, whole)) == pytest.approx(
                float(golden[f"lm_{update}"].mean()), abs=1e-4
            )
        trainer.update(
            [
                collate(encoded, chosen, targets, update_examples=4, update_sequences=8)
                for chosen in np.array_split(np.arange(4), parts)
            ]
        )
        if update not in {0, 1, 5}:
            continue
        after = our_parameters(names, [golden[f"after{update}_{i}"] for i in range(len(names))], rows)
        for name, parameter in model.named_parameters():
            mine, theirs = parameter.detach(), after[name]
            if name == "head.bias":  # no gradient but rounding noise
                continue
            if name.endswith("query_key_value.bias"):  # nor has the key part of this one
                width = config["n_embd"]
                mine, theirs = (torch.cat([b[:width], b[2 * width :]]) for b in (mine, theirs))
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def test_dropout_is_on_the_matrix_that_looks_up_and_predicts(golden_data: Path) -> None:
    """The original program drops entries of its one matrix, which embeds, adds positions and predicts."""
    golden: Any = np.load(golden_data / "golden" / "gpt1_finetune_steps.npz")
    config = json.loads(str(golden["config"]))
    rows = config["n_vocab"] + config["n_special"]
    model = TaskModel(build_model(original_shape(config, dropout=0.3), seed=0), "choice", 1, dropout=0.0)
    start = [golden[f"init_{i}"] for i in range(len(golden["names"]))]
    model.load_state_dict(our_parameters([str(name) for name in golden["names"]], start, rows))
    model.train()
    model.model.blocks.eval()  # only the embedding's dropout is drawn
    encoded = encoded_update(golden["x_0"][..., 0], golden["m_0"], golden["y_0"])
    whole = collate(
        encoded, range(4), Labels(target="answer").probabilities(encoded), update_examples=4, update_sequences=8
    )
    torch.manual_seed(5)
    with torch.no_grad():
        found = float(language_model_loss(model(whole, with_matrix=True), whole))
        torch.manual_seed(5)
        tokens = torch.nn.functional.dropout(model.model.tokens.weight, 0.3)
        positions = torch.nn.functional.dropout(model.model.positions.weight, 0.3)
        matrix = torch.cat([tokens, positions])
        assert 0.2 < float((matrix == 0).float().mean()) < 0.4
        x = matrix[whole.ids] + matrix[rows : rows + whole.ids.shape[1]]
        for block in model.model.blocks:
            x = block(x)
        logits = x @ matrix.t()  # over every row, those of positions too
        losses = []
        for sequence, extract in enumerate(whole.extract.tolist()):
            targets = whole.ids[sequence, 1 : extract + 1]
            losses.append(torch.nn.functional.cross_entropy(logits[sequence, :extract], targets))
    assert logits.shape[-1] == rows + config["n_ctx"]
    assert found == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
