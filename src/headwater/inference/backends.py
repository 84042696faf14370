"""Open a model as a `Network`: on the native kernels if they support it, else in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import torch

from headwater import native
from headwater.device import bf16_is_fast
from headwater.errors import UsageError
from headwater.inference.masked import require_causal
from headwater.inference.native_network import NativeNetwork, supported
from headwater.inference.network import Network, Precision
from headwater.inference.torch_network import TorchNetwork
from headwater.model import ModelConfig, Transformer, architecture_of
from headwater.plugins import Plugin

if TYPE_CHECKING:
    from headwater.model import Model


# With fewer weights a step is not bound by reading them, so float32 costs nothing.
_SMALL = 20_000_000


def open_network(model: Model, precision: Precision | None = None, *, consume: bool = False) -> Network:
    """Read a model's weights at a precision; None means its matrices' own, float32 or bfloat16.

    With `consume` each matrix is freed once it is read, so that none is in memory twice; the model is then
    unusable. Raises UsageError for a precision that the model or its device does not have, and for a model that
    does not read from left to right.
    """
    require_causal(model.config)
    weight = model.tokens.weight
    own = "bf16" if weight.dtype == torch.bfloat16 else "fp32"
    precision = choose_precision(precision or own, model.config, weight.device)
    if target := architecture_of(model.config).network:
        made: Network = Plugin(target).load()(model, precision)
        return made
    assert isinstance(model, Transformer)
    if supported(model):
        return NativeNetwork(model, precision, consume=consume)
    return TorchNetwork.of(model, precision, consume=consume)


def choose_precision(name: str, config: ModelConfig, device: torch.device) -> Precision:
    """Return the precision called `name`; raise UsageError for one that the model does not have.

    auto: bf16 if it is faster and the model is large enough to gain, else fp32. It is faster on devices that
    multiply it in hardware, and with the native kernels, which read half the bytes.
    """
    if name == "auto":
        weights = config.width * (config.vocabulary + 12 * config.layers * config.width)
        # A masked model runs as a torch module, and users read its probabilities.
        if config.is_masked or config.is_recurrent or weights <= _SMALL:
            return "fp32"
        compiled = device.type == "cpu" and native.kernels() is not None
        return "bf16" if compiled or bf16_is_fast(device) else "fp32"
    if name == "int8" and (config.is_masked or config.is_recurrent):
        kind = "a masked model" if config.is_masked else f"a model of kind {config.architecture}"
        raise UsageError(f"{name} does not work with {kind}", expected="fp32 or bf16")
    if name == "int8" and (device.type != "cpu" or native.kernels() is None):
        where = f"on {device.type}" if device.type != "cpu" else "without the compiled kernels"
        raise UsageError(f"{name} {where}", expected="a CPU and its kernels", repair="Use precision bf16")
    if name in get_args(Precision):
        return cast("Precision", name)
    raise UsageError(f"there is no precision {name!r}", expected="fp32, bf16, int8 or auto")
