"""`hw.load`: open a model by its folder or name, with its tokenizer, at a precision, on a device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headwater import shipped
from headwater.inference.backends import choose_precision
from headwater.inference.embedding import EmbeddingRule
from headwater.inference.language_model import LanguageModel
from headwater.inference.network import Precision
from headwater.model import load_config, model_reader
from headwater.tokenizer import Tokenizer


def load(
    model: str | Path,
    *,
    tokenizer: str | Path | None = None,
    precision: Precision | str = "fp32",
    device: str = "auto",
    slots: int = 8,
    download: bool = False,
    compose: bool = True,
) -> LanguageModel:
    """Open a model folder, Headwater's or Hugging Face's, a shipped model, or a hub name.

    tokenizer: a folder, "gpt2" or "gpt1", for a model folder without a tokenizer. Without one, only `logits`
    works; calls with text raise MismatchError.
    precision: "fp32", "bf16", "int8" (only weights) or "auto"; see `inference.backends`.
    device: "auto" (a GPU if available), "cpu", "cuda", "cuda:1" or "mps".
    slots: the number of continuations at the same time; each has a context of keys and values.
    download: download a hub name or a tokenizer that is not on this machine.
    compose: bring every text into Unicode's composed form (NFC): both forms of 각 or é give the same answers.

    Raises FolderError or DataError for a folder that is not a model, ResourceError for a hub name that is not
    available, MismatchError for a tokenizer that does not fit the model.
    """
    import torch

    from headwater.device import choose_device

    folder = shipped.resolve(model, download=download)
    chosen_device = choose_device(device, training=False)
    config = load_config(folder)
    precision = choose_precision(precision, config, chosen_device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    read = model_reader(folder, dtype=dtype, device=chosen_device)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(Tokenizer.of_model, folder, config.vocabulary, tokenizer, download=download)
        opened = read()
    tokens = opening.result()
    rule = EmbeddingRule.read(folder)
    return LanguageModel(
        opened, tokens, precision=precision, slots=slots, read=read, compose=compose, embedding=rule
    )
