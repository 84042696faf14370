from .dispatch import available, check, chosen, extension
from .elementwise import AdamStep, Kernels, kernels
from .forward import PAGE, Affine, Forward, Shape, TransformerWeights
from .matrix import PANEL, PackedMatrix, allocate, to_int8

__all__ = [
    "PAGE",
    "PANEL",
    "AdamStep",
    "Affine",
    "Forward",
    "Kernels",
    "PackedMatrix",
    "Shape",
    "TransformerWeights",
    "allocate",
    "available",
    "check",
    "chosen",
    "extension",
    "kernels",
    "to_int8",
]
