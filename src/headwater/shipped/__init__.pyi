from .catalogue import (
    DEFAULT,
    STARTS,
    TRAINED_ON,
    find,
    folder_of,
    hub_name,
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
from .model_files import model_file, refuse_pointer
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
    "hub_name",
    "is_shadowed",
    "list_checkpoints",
    "model_file",
    "name_of",
    "names",
    "not_a_model",
    "origin_of",
    "refuse_pointer",
    "replace_hub_name",
    "resolve",
    "split_name",
    "step_of",
]
