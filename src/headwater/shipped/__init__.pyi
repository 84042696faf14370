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
    replace_hub_name,
    resolve,
    split_name,
)
from .hub import hub_name

__all__ = [
    "DEFAULT",
    "STARTS",
    "TRAINED_ON",
    "find",
    "folder_of",
    "hub_name",
    "is_shadowed",
    "name_of",
    "names",
    "not_a_model",
    "replace_hub_name",
    "resolve",
    "split_name",
]
