"""One vector per text: the mean over its tokens of the model's last hidden states, or as its folder specifies.

A folder of sentence-transformers lists in `modules.json` what follows the Transformer: how the hidden states are
pooled (`1_Pooling/config.json`) and whether the vector is brought to length 1; `sentence_bert_config.json` has the
most tokens of a text. The vectors equal that library's. Texts are read in batches of similar length;
padding changes no vector.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.errors import DataError, FolderError
from headwater.inference.scorer import require_finite
from headwater.model import padding_mask
from headwater.reading import read_json, read_object

if TYPE_CHECKING:
    from headwater.model import Model

MODULES, SETTINGS = "modules.json", ("sentence_bert_config.json", "config_sentence_transformers.json")
_TOKENIZER = "tokenizer_config.json"
MEAN, FIRST = "mean", "cls"
_BATCH_TOKENS = 4_096  # padding included
_LEAST = 1e-12  # instead of dividing by zero


@dataclass(frozen=True)
class EmbeddingRule:
    """How a text becomes a vector.

    most_tokens: a longer text is cut, with the tokens around it counted; None: to the model's context.
    unsupported: parts of the rule that change the vector. source: the folder with the rule.
    """

    pooling: str = MEAN
    normalize: bool = False
    most_tokens: int | None = None
    unsupported: str = ""
    source: Path | None = None

    @classmethod
    def read(cls, folder: Path) -> EmbeddingRule:
        """Return the rule of a model folder: the mean, if it is not a folder of sentence-transformers."""
        if not (folder / MODULES).is_file():
            return cls()
        kinds = {str(module.get("type", "")).rpartition(".")[2]: module for module in _modules(folder)}
        pooling, settings = FIRST, read_object(folder / SETTINGS[0])
        if "Pooling" in kinds:
            config = read_object(folder / str(kinds["Pooling"].get("path")) / "config.json")
            # In files of before sentence-transformers 5, each pooling is a switch.
            switches = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
            named = (
                " and ".join(switches).removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens")
            )
            pooling = str(config.get("pooling_mode") or named or MEAN)
        others = kinds.keys() - {"Transformer", "Pooling", "Normalize", "Dropout"}
        others |= ({"do_lower_case"} if settings.get("do_lower_case") else set()) | ({pooling} - {MEAN, FIRST})
        limits = settings.get("max_seq_length"), read_object(folder / _TOKENIZER).get("model_max_length")
        most = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
        return cls(pooling, "Normalize" in kinds, most, ", ".join(sorted(others)), folder)

    def require_known(self) -> None:
        """Raise FolderError for a folder with a module or a pooling that is not supported."""
        if self.unsupported:
            raise FolderError(
                f"{self.source} has {self.unsupported} among its modules",
                expected=f"Transformer, Pooling ({MEAN} or {FIRST}) and Normalize",
                repair="Read it with sentence-transformers",
            )

    def copy_files(self, folder: Path) -> None:
        """Copy the files with these settings into a folder with the same model."""
        if self.source is None:
            return
        names = [MODULES, *(name for name in SETTINGS if (self.source / name).is_file())]
        for module in _modules(self.source):
            config = Path(str(module.get("path"))) / "config.json"
            if config.parent.name and (self.source / config).is_file():
                names.append(str(config))
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(self.source / name, folder / name)


@torch.inference_mode()
def text_vectors(model: Model, texts: Sequence[list[int]], rule: EmbeddingRule) -> npt.NDArray[np.float32]:
    """Return one vector for each list of ids, (texts, width), by a module in evaluation mode."""
    rule.require_known()
    device = model.tokens.weight.device
    vectors = np.empty((len(texts), model.config.output_width), np.float32)
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    while order:
        time = len(texts[order[-1]])
        count = max(1, _BATCH_TOKENS // time)
        chosen, order = order[-count:], order[:-count]
        lengths = torch.tensor([len(texts[number]) for number in chosen], device=device)
        ids = [texts[number] + [0] * (time - len(texts[number])) for number in chosen]
        mask = None if model.config.is_causal else padding_mask(lengths, time)
        pooled = pool(model.hidden(torch.tensor(ids, device=device), mask=mask), lengths, rule.pooling)
        vectors[chosen] = pooled.float().cpu().numpy()
    require_finite(vectors)
    return vectors


def pool(hidden: Tensor, lengths: Tensor, pooling: str = MEAN) -> Tensor:
    """Return one vector a sequence, padded on the right: (sequences, time, width) -> (sequences, width)."""
    if pooling == FIRST:
        return hidden[:, 0]
    real = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None])[:, :, None]
    return (hidden * real).sum(dim=1) / lengths[:, None]


def unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return vectors of length 1 in the same directions."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # squares may exceed float32
    return (vectors / lengths.clip(_LEAST)).astype(np.float32)


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return what `modules.json` lists, with paths inside the folder."""
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DataError(f"{folder / MODULES} is not a list of modules", expected="sentence-transformers' file")
    for module in modules:
        path = Path(str(module.get("path")))
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"{folder / MODULES} has the path {str(path)!r}", expected="one inside the folder")
    return modules
