"""Convert a model: the source's format is recognised by its files, the destination's by its name.

A folder is a `Stage`, so that `headwater lineage` leads back to the original files; a name that ends in .gguf is
one file. The tokenizer is the user's, else the source's, else OpenAI's original if the model has its number of
rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from headwater import shipped
from headwater.convert import openai
from headwater.errors import FolderError, ResourceError, UsageError
from headwater.model import load_model, save_model
from headwater.reading import read_object
from headwater.storage import INTERACTIVE, Progress, Stage
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

WeightFormat = Literal["f32", "bf16", "f16", "q8_0"]
_FOLDER_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_VOCABULARIES = ("vocab.json", "encoder.json", "encoder_bpe_40000.json")
# What other programs write models to; Headwater writes a folder or GGUF.
_FILES = (".bin", ".ckpt", ".h5", ".npz", ".onnx", ".pt", ".pth", ".safetensors", ".zip")
# Files of a Hugging Face folder that are read, besides its weights, and keys of one of them.
_CARRIED = {
    *("config.json", "generation_config.json", "headwater.json", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "meta.pkl", "pytorch_model.bin", "pytorch_model.bin.index.json"),
}
_GENERATION = {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "_from_model_config"}
_ORIGINAL_ROWS = {40_478: "gpt1", 50_257: "gpt2"}


def convert(
    source: Path,
    destination: Path,
    *,
    precision: WeightFormat | None = None,
    tokenizer: str | None = None,
    download: bool = False,
    progress: Progress = INTERACTIVE,
) -> dict[str, Any]:
    """Convert the model in `source`; return what was written (source kind, destination, parameters, tokenizer) and
    what was left out.

    `precision` None is f32 for a folder, f16 for GGUF. `download` fetches a tokenizer that is not on this machine.
    Raises UsageError for a precision that the destination does not have, FolderError for a source that is not a
    model, MismatchError for a tokenizer that is not the source's.
    """
    gguf = destination.suffix == ".gguf"
    allowed = ("f32", "f16", "q8_0") if gguf else tuple(_FOLDER_DTYPES)
    precision = precision or ("f16" if gguf else "f32")
    if destination.suffix.lower() in _FILES and not destination.is_dir():
        raise UsageError(
            f"{destination} is the name of a file", expected="a folder to write, or a file that ends in .gguf"
        )
    if precision not in allowed:
        target = "GGUF" if gguf else "a folder"
        raise UsageError(f"{target} is not written in {precision}", expected=", ".join(allowed))
    source = shipped.resolve(source)
    kind, weights_folder = _recognise(source)
    progress.start("reading the model")
    heads_for_tasks: list[str] = []
    if kind == "openai-gpt1":
        model = openai.read_gpt1(weights_folder)
    elif kind == "openai-gpt2":
        model = openai.read_gpt2(weights_folder)
    else:
        model = load_model(weights_folder, unused=heads_for_tasks)
    its_tokenizer = _find_tokenizer(tokenizer, weights_folder, model, progress, download=download)
    if gguf:
        from headwater.convert.gguf import write_gguf

        if its_tokenizer is None:
            raise FolderError(f"{source} has no tokenizer, and GGUF needs one", repair="Give one: --tokenizer T")
        write_gguf(model, its_tokenizer, destination, cast(Any, precision))
    else:
        identity = its_tokenizer.identity if its_tokenizer else None
        decided: dict[str, Any] = {"source": kind, "precision": precision, "tokenizer": identity}
        inputs = {"weights": source} | ({} if tokenizer is None else Tokenizer.inputs_of(tokenizer))
        stage = Stage(destination, kind="model", config=decided, inputs=inputs)
        if not stage.is_complete():
            with stage.write() as work:
                save_model(model, work, tokenizer=its_tokenizer, dtype=_FOLDER_DTYPES[precision])
    left_out = _left_out(kind, weights_folder, its_tokenizer, gguf) + heads_for_tasks
    if left_out:
        progress.note(f"Left out: {', '.join(left_out)}")
    count = sum(parameter.numel() for parameter in model.parameters())
    progress.finish(f"{destination}, {count:,} parameters in {precision}")
    return {
        "source": kind,
        "destination": str(destination),
        "parameters": count,
        "precision": precision,
        "tokenizer": its_tokenizer.kind if its_tokenizer else None,
        "left_out": left_out,
    }


def _recognise(source: Path) -> tuple[str, Path]:
    """Return the kind of the source, and the folder of its weights."""
    if (single := shipped.model_file(source)) is not None:
        return "nanogpt", single
    for folder in (source, source / "model"):  # the repository of GPT-1 keeps its release in a folder "model"
        if (folder / openai.SHAPES).is_file():
            return "openai-gpt1", folder
        if (folder / openai.HPARAMS).is_file():
            return "openai-gpt2", folder
    classes = read_object(source / "config.json").get("architectures")
    if (source / "task.json").is_file() or "ForSequenceClassification" in str(classes):
        raise UsageError(
            f"{source} is a fine-tuned model, whose head would be lost",
            expected="a language model",
            repair=f"{source} is already a Hugging Face folder; convert its base model instead",
        )
    if (source / "config.json").is_file():
        return "huggingface", source
    raise FolderError(
        f"{source} is not a model that Headwater can read",
        expected=f"a folder with {openai.SHAPES}, {openai.HPARAMS}, config.json or nanoGPT's ckpt.pt",
    )


def _left_out(kind: str, source: Path, tokenizer: Tokenizer | None, gguf: bool) -> list[str]:
    """Return what a model's file or folder has that the converted one does not, by name."""
    left: list[str] = []
    if kind == "nanogpt":
        left.append("the optimizer's state")
    elif kind == "huggingface":
        left += [
            path.name
            for path in sorted(source.iterdir())
            if path.name not in _CARRIED and path.suffix != ".safetensors" and not path.name.startswith(".")
        ]
        generation = read_object(source / "generation_config.json").keys() - _GENERATION
        left += [f"{key} of generation_config.json" for key in sorted(generation)]
        if read_object(source / "tokenizer_config.json").get("chat_template"):
            left.append("chat_template of tokenizer_config.json")
        step = read_object(source / "tokenizer.json").get("post_processor")
        if (
            isinstance(step, dict)
            and step.get("type") != "ByteLevel"
            and tokenizer
            and tokenizer.kind != "foreign"
        ):
            left.append("post_processor of tokenizer.json")
    flags = ("single_word", "lstrip", "rstrip") if gguf and tokenizer else ()  # the format has no place for them
    added = tokenizer.vocabulary.added if tokenizer else ()
    return left + [f"{flag} of {token.content}" for token in added for flag in flags if getattr(token, flag)]


def _find_tokenizer(
    named: str | None, folder: Path, model: Model, progress: Progress, *, download: bool
) -> Tokenizer | None:
    rows = model.config.vocabulary
    own = Tokenizer.of_model(folder, rows, named, download=download)
    if own is None and any((folder / name).is_file() for name in _VOCABULARIES):
        return Tokenizer.load(folder)  # raises, since the merges are missing
    if own is None and rows in _ORIGINAL_ROWS:
        try:
            return Tokenizer.load(_ORIGINAL_ROWS[rows], download=download)
        except ResourceError as error:
            progress.note(f"The model is written without a tokenizer: {error}")
    return own
