from .catalogue import (
    DEFAULT,
    FOLDER,
    STARTS,
    TRAINED_ON,
    find,
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
    "FOLDER",
    "STARTS",
    "TRAINED_ON",
    "find",
    "hub_name",
    "is_shadowed",
    "name_of",
    "names",
    "not_a_model",
    "replace_hub_name",
    "resolve",
    "split_name",
]
