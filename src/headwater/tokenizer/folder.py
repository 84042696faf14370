"""`TokenizerFiles`: the JSON files of a tokenizer's folder, each read once; all kinds are made from it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.reading import read_object

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
# The class of a model's tokenizer where no file names one.
CLASSES = {"gpt2": "GPT2Tokenizer", "openai-gpt": "OpenAIGPTTokenizer", "bert": "BertTokenizer"}


class TokenizerFiles:
    """A folder as read. Its content is shared: do not change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the object in a file; empty if the file does not exist."""
        if name not in self._read:
            self._read[name] = read_object(self.folder / name)
        return self._read[name]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """`tokenizer_config.json`, its tokens as texts, with what an older `special_tokens_map.json` adds."""
        content = self[SETTINGS]
        # transformers reads the older file only where the newer one does not describe the added tokens.
        older = {} if "added_tokens_decoder" in content else self["special_tokens_map.json"]
        merged = {**content, **older}
        for key, value in merged.items():
            if key.endswith("_token") and isinstance(value, dict):
                merged[key] = value.get("content")
        return merged

    @cached_property
    def named(self) -> set[str]:
        """The texts of the tokens with a role."""
        return {str(value) for key, value in self.settings.items() if key.endswith("_token")}

    @cached_property
    def tokenizer_class(self) -> str:
        """The class that AutoTokenizer opens the folder with, without "Fast"; empty if no file names one."""
        config = self["config.json"]
        named = self[SETTINGS].get("tokenizer_class") or config.get("tokenizer_class")
        return str(named or CLASSES.get(str(config.get("model_type")), "")).removesuffix("Fast")
