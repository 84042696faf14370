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
from .hub import hub_name
from .runs import find_checkpoint, list_checkpoints, step_of

__all__ = [
    "DEFAULT",
    "STARTS",
    "TRAINED_ON",
    "find",
    "find_checkpoint",
    "folder_of",
    "hub_name",
    "is_shadowed",
    "list_checkpoints",
    "name_of",
    "names",
    "not_a_model",
    "origin_of",
    "replace_hub_name",
    "resolve",
    "split_name",
    "step_of",
]
