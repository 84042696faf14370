"""The GPT of examples/pencil.py: a spreadsheet program computes what transformers and torch compute."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "pencil.py"
# The parameters of transformers' GPT-2, whose matrices also have a row for each input.
PEER = {"tokens": "wte.weight", "positions": "wpe.weight"}
LAYERS = {"projection": "h.0.attn.c_proj", "expand": "h.0.mlp.c_fc", "contract": "h.0.mlp.c_proj"}
PEER |= {f"{name} {part}": f"{theirs}.{part}" for name, theirs in LAYERS.items() for part in ("weight", "bias")}
NORMS = {"norm_1": "h.0.ln_1", "norm_2": "h.0.ln_2", "norm_3": "ln_f"}
PEER |= {f"{name} gain": f"{theirs}.weight" for name, theirs in NORMS.items()}
PEER |= {f"{name} bias": f"{theirs}.bias" for name, theirs in NORMS.items()}
FUSED = {
    f"h.0.attn.c_attn.{part}": [f"{name} {part}" for name in ("query", "key", "value")]
    for part in ("weight", "bias")
}


def load_example() -> ModuleType:
    pytest.importorskip("openpyxl")
    spec = importlib.util.spec_from_file_location("pencil", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    pencil = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pencil)
    return pencil


class Spreadsheet:
    """The workbook in a spreadsheet program."""

    def __init__(self, folder: Path) -> None:
        self.pencil = load_example()
        formulas = pytest.importorskip("formulas")
        self.pencil.pencil().save(folder / "pencil.xlsx")
        self.model = formulas.ExcelModel().loads(str(folder / "pencil.xlsx")).finish()

    def compute(self, changed: dict[str, Any]) -> None:
        self.cells = self.model.calculate(inputs={_name(address): value for address, value in changed.items()})

    def value(self, address: str) -> Any:
        return self.cells[_name(address)].value[0, 0]

    def parameters(self, sheet: str) -> dict[str, torch.Tensor]:
        """Return the matrices of a sheet under the peer's names."""
        ours, top = {}, 2
        for name, (rows, columns) in self.pencil.SHAPES.items():
            block = self.pencil.Block(sheet, top, rows, columns)
            values = [float(self.value(block[place])) for place in product(range(rows), range(columns))]
            ours[name] = torch.tensor(values, dtype=torch.float64).reshape(rows, columns)
            top += rows + 2
        found = {theirs: ours[name] for name, theirs in PEER.items()}
        found |= {theirs: torch.cat([ours[part] for part in parts], dim=1) for theirs, parts in FUSED.items()}
        matrices = ("wte.weight", "wpe.weight", *(f"{place}.weight" for place in LAYERS.values()))
        return {
            f"transformer.{name}": value if name in matrices or name.endswith("c_attn.weight") else value[0]
            for name, value in found.items()
        }


def _name(address: str) -> str:
    return f"'[pencil.xlsx]{address[1:].upper()}"


def test_only_words_settings_and_weights_are_typed() -> None:
    pencil = load_example()
    book = pencil.pencil()
    weights = sum(rows * columns for rows, columns in pencil.SHAPES.values())
    typed = {sheet.title: 0 for sheet in book}
    for sheet in book:
        for _, *row in sheet.iter_rows(values_only=True):  # the first column names rows
            typed[sheet.title] += sum(cell is not None and not str(cell).startswith("=") for cell in row)
    later = pencil.TIME * (pencil.TIME - 1) // 2  # words that attention does not see: 0
    assert typed["Text"] == len(pencil.WORDS) + len(pencil.SENTENCE) + len(pencil.SETTINGS)
    assert typed["Weights"] == weights
    assert typed["Forward"] == typed["After"] == later
    assert {typed[name] for name in ("Backward", "Gradients", "Adam m", "Adam v", "New weights")} == {0}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_formulas_of_the_spreadsheet_are_a_gpt(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sheet = Spreadsheet(tmp_path)
    pencil = sheet.pencil
    rate, decay, beta_1, beta_2, epsilon = pencil.SETTINGS.values()
    config = transformers.GPT2Config(
        **{"vocab_size": 8, "n_positions": 5, "n_embd": 4, "n_layer": 1, "n_head": 1},
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"},
    )
    sentence = list(pencil.SENTENCE)
    # As it is; then with another second word, and another weight of the third word.
    for changed in ({}, {"'Text'!B17": "boat", "'Weights'!C4": 1.5}):
        sheet.compute(changed)
        if changed:
            sentence[1] = "boat"
        ids = torch.tensor([[pencil.WORDS.index(word) for word in sentence]])
        peer = transformers.GPT2LMHeadModel(config).double()
        peer.load_state_dict(sheet.parameters("Weights"), strict=False)

        def loss_of(model: Any, ids: torch.Tensor = ids) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0], ids[0, 1:])

        loss = loss_of(peer)
        loss.backward()
        assert sheet.value("'Text'!B2") == pytest.approx(loss.item(), abs=1e-6)
        named = dict(peer.named_parameters())
        for name, gradient in sheet.parameters("Gradients").items():
            assert torch.allclose(gradient, named[name].grad, atol=1e-6, rtol=0), name

        groups = [
            {"params": [p for p in named.values() if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in named.values() if p.dim() == 1], "weight_decay": 0.0},
        ]
        torch.optim.AdamW(groups, lr=rate, betas=(beta_1, beta_2), eps=epsilon).step()
        for name, weight in sheet.parameters("New weights").items():
            assert torch.allclose(weight, named[name].detach(), atol=1e-6, rtol=0), name
        assert sheet.value("'Text'!B3") == pytest.approx(loss_of(peer).item(), abs=1e-6)
        assert sheet.value("'Text'!B3") < sheet.value("'Text'!B2")
