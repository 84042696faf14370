"""Relatives of GPT-1: its LSTM, ELMo's model, and the task model that reads ELMo's features."""

from pathlib import Path

from headwater.model import Architecture

RECIPES = Path(__file__).parent / "recipes"
_SHAPE = {"layers": 2, "heads": 1, "dropout": 0.1, "vocabulary": 4_096, "context": 256}
# ELMo's two layers. Units are a multiple of 8: rows of bfloat16 then begin at a multiple of 16 bytes, which fast
# matmuls on a GPU need. These units bring the parameters nearest to gpt1-nano's (1.4 % more) and gpt1-mini's
# (0.2 % more).
_PRESETS = {
    name: {"architecture": "bilstm", **_SHAPE, "width": width, "units": units}
    for name, width, units in (("bilstm-nano", 192, 200), ("bilstm-mini", 320, 456))
}


_LSTM = {"architecture": "lstm", "layers": 1, "heads": 1, "dropout": 0.1}
_LSTM_PRESETS = {
    "lstm": _LSTM | {"vocabulary": 40_478, "context": 512, "width": 768, "units": 2_048},
    "lstm-nano": _LSTM | {"vocabulary": 4_096, "context": 256, "width": 192, "units": 512},
    "lstm-mini": _LSTM | {"vocabulary": 4_096, "context": 256, "width": 320, "units": 896},
}


def register() -> None:
    """Add the architectures `lstm` and `bilstm`, and their presets."""
    lstm = Architecture(
        "headwater_papers.relatives.lstm:LSTM",
        is_recurrent=True,
        network="headwater_papers.relatives.lstm_network:RecurrentNetwork",
    )
    lstm.register("lstm", _LSTM_PRESETS)
    bilstm = Architecture(
        "headwater_papers.relatives.bilstm:BiLSTM", is_recurrent=True, is_causal=False, directions=2
    )
    bilstm.register("bilstm", _PRESETS)
