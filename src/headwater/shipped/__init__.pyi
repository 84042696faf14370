from .catalogue import (
    DEFAULT,
    STARTS,
    TRAINED_ON,
    find,
    folder_of,
    is_shadowed,
    name_of,
    names,
    not_a_model,
    origin_of,
    replace_hub_name,
    resolve,
    split_name,
)
from .encoders import ENCODERS, fetch_encoder
from .hub import hub_name
from .model_files import gguf_value, is_gguf, model_file, open_gguf, refuse_pointer
from .runs import find_checkpoint, list_checkpoints, step_of

__all__ = [
    "DEFAULT",
    "ENCODERS",
    "STARTS",
    "TRAINED_ON",
    "fetch_encoder",
    "find",
    "find_checkpoint",
    "folder_of",
    "gguf_value",
    "hub_name",
    "is_gguf",
    "is_shadowed",
    "list_checkpoints",
    "model_file",
    "name_of",
    "names",
    "not_a_model",
    "open_gguf",
    "origin_of",
    "refuse_pointer",
    "replace_hub_name",
    "resolve",
    "split_name",
    "step_of",
]
