"""Adam with decoupled weight decay over float32 master weights.

The model's matrices are bfloat16 or float32; the optimizer updates float32 masters of them (the same tensors if
the model is float32). Gradients of bfloat16 matrices are summed in float32. Weight decay applies to every
parameter of rank two or more: matrices and embeddings, never biases or gains.

Two forms of Adam. "standard" is Kingma and Ba's algorithm 1, as in torch. "original" is GPT-1's code: ε is
added to √v before the bias correction of v, and the decay is multiplied by the corrected step size (GPT-1 section
4.1, "modified L2"). Both are the same kernel with a different ε and decay at each update: with c_i = 1 − β_i^t,
the original's are ε/√c_2 and decay · √c_2/c_1.

`muon`: Muon (Jordan et al. 2024), which neither paper uses, updates the matrices between embeddings and head by
their orthogonalised momentum; Adam updates the rest.

`kernels`: clipping, Adam and the copy to the model are one pass over memory (`native/elementwise.py`), and the
gradients of an update's only micro-batch stay in bfloat16, because their conversion to float32 is exact.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwater.native import AdamStep, Kernels
from headwater.training.config import TrainConfig


class Weight(NamedTuple):
    """A parameter that the model computes with, and its float32 master: the same tensor if it is float32."""

    name: str
    parameter: nn.Parameter
    master: Tensor


def master_weights(module: nn.Module, matrix_dtype: torch.dtype, *, contiguous: bool = False) -> list[Weight]:
    """Convert a module's matrices to a dtype, in place, and return its trained weights with their masters.

    contiguous: give a weight, its moments and its gradient one order of elements, as native kernels need.
    """
    weights = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if contiguous:
            parameter.data = parameter.data.contiguous()
        master: Tensor = parameter
        if parameter.dim() >= 2 and matrix_dtype != torch.float32:
            master = parameter.detach().float().clone()
            parameter.data = parameter.data.to(matrix_dtype)
        weights.append(Weight(name, parameter, master))
    return weights


def inner_matrices(module: nn.Module, weights: Sequence[Weight]) -> list[Tensor]:
    """Return the masters of the matrices between embeddings and head, which Muon updates."""
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding))
    embeddings = {id(parameter) for table in tables for parameter in table.parameters()}
    return [w.master for w in weights if w.master.dim() == 2 and id(w.parameter) not in embeddings]


class Optimizer:
    """Updates parameters through their float32 masters. muon: the masters that Muon updates, Adam the others."""

    def __init__(
        self,
        weights: Sequence[Weight],
        config: TrainConfig,
        kernels: Kernels | None = None,
        muon: Sequence[Tensor] = (),
    ) -> None:
        self._kernels = kernels
        self._scale = 1.0  # the factor of the gradients after clipping
        self._bf16_gradient: dict[int, Tensor] = {}  # bfloat16 gradients of the first micro-batch, by index
        # Float32 gradients of the previous update, to be overwritten: with batches of different shapes, freeing
        # and allocating them again would fragment memory.
        self._reusable_buffer: dict[int, Tensor] = {}
        self.config, self.betas = config, (config.beta1, config.beta2)
        self.updates = 0
        self.names = [weight.name for weight in weights]
        self.parameters = [weight.parameter for weight in weights]
        self.masters = [weight.master for weight in weights]
        # The garbage collector does not see a hook's references: an optimizer in one would never be freed.
        hook = partial(_move_gradient, weakref.ref(self))
        for index, (parameter, master) in enumerate(zip(self.parameters, self.masters, strict=True)):
            if parameter is not master:
                parameter.register_post_accumulate_grad_hook(partial(hook, index))
        # The size of its steps is Adam's, so that both can have one learning rate.
        self._muon = torch.optim.Muon(list(muon), lr=0.0, adjust_lr_fn="match_rms_adamw") if muon else None
        taken = {id(master) for master in muon}
        decayed = [m for m in self.masters if m.dim() >= 2 and id(m) not in taken]
        others = [m for m in self.masters if m.dim() < 2]
        self._adam = torch.optim.AdamW(
            [{"params": group} for group in (decayed, others) if group],
            lr=0.0,
            betas=self.betas,
            eps=config.epsilon,
            weight_decay=0.0,
            fused=True,
        )
        for master in (*decayed, *others):
            self._adam.state[master] = {"step": torch.zeros((), dtype=torch.float32, device=master.device)} | {
                name: torch.zeros_like(master, memory_format=torch.preserve_format).detach()
                for name in ("exp_avg", "exp_avg_sq")
            }
        if self._muon is not None:
            for master in muon:
                self._muon.state[master]["momentum_buffer"] = torch.zeros_like(master)

    @property
    def gradients(self) -> list[Tensor]:
        """Float32 gradients of the masters; 0 for a parameter that is not part of the loss."""
        for index, first in self._bf16_gradient.items():
            self.masters[index].grad = first.float()
        self._bf16_gradient.clear()
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        return [master.grad for master in self.masters if master.grad is not None]

    def clear_gradients(self) -> None:
        """Clear the gradients of the previous update."""
        self._bf16_gradient.clear()
        for index, (parameter, master) in enumerate(zip(self.parameters, self.masters, strict=True)):
            if parameter is not master and master.grad is not None:
                self._reusable_buffer[index] = master.grad
            parameter.grad = master.grad = None

    def free_gradients(self) -> None:
        """Clear the gradients and return their memory."""
        self.clear_gradients()
        self._reusable_buffer.clear()

    def clip(self, limit: float) -> Tensor:
        """Scale all gradients so that their joint L2 norm is at most `limit` (0: no limit); return the norm.

        With native kernels the next step scales them.
        """
        if self._kernels is not None:
            squares = [self._kernels.sum_of_squares(g) for g in self._gradients_or_none() if g is not None]
            norm = torch.stack(squares).sum().sqrt().float() if squares else torch.zeros(())
            self._scale = min(1.0, limit / (float(norm) + 1e-6)) if limit > 0 else 1.0
            return norm
        norm = torch.nn.utils.get_total_norm(self.gradients)
        if hasattr(norm, "full_tensor"):  # sharded: each rank has its part
            norm = norm.full_tensor()
        if limit > 0:
            torch.nn.utils.clip_grads_with_norm_(self.masters, limit, norm)
        return norm

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the masters and the model's matrices."""
        with torch.profiler.record_function("Optimizer.step"):
            self.updates += 1
            epsilon, decay = self.config.epsilon, self.config.weight_decay
            if self.config.adam == "original":
                correction_1 = 1 - self.betas[0] ** self.updates
                correction_2 = 1 - self.betas[1] ** self.updates
                epsilon /= math.sqrt(correction_2)
                decay *= math.sqrt(correction_2) / correction_1
            if self._kernels is not None:
                self._step_native(self._kernels, learning_rate, epsilon, decay)
                return
            for group in self._adam.param_groups:
                matrices = group["params"][0].dim() >= 2
                group.update(lr=learning_rate, eps=epsilon, weight_decay=decay if matrices else 0.0)
            self._adam.step()
            if self._muon is not None:
                self._muon.param_groups[0].update(lr=learning_rate, weight_decay=self.config.weight_decay)
                self._muon.step()
            self.copy_to_model()

    def _step_native(self, kernels: Kernels, learning_rate: float, epsilon: float, decay: float) -> None:
        for parameter, master, gradient in zip(
            self.parameters, self.masters, self._gradients_or_none(), strict=True
        ):
            moments = self._adam.state[master]
            step = AdamStep(
                scale=self._scale,
                keep=1 - learning_rate * decay if master.dim() >= 2 else 1.0,
                betas=self.betas,
                rate=learning_rate / (1 - self.betas[0] ** self.updates),
                correction=1 / math.sqrt(1 - self.betas[1] ** self.updates),
                epsilon=epsilon,
            )
            kernels.adam_(
                master,
                torch.zeros_like(master) if gradient is None else gradient,
                (moments["exp_avg"], moments["exp_avg_sq"]),
                None if parameter is master else parameter,
                step,
            )
        self._scale = 1.0

    def _gradients_or_none(self) -> list[Tensor | None]:
        """Return each parameter's gradient, bfloat16 or float32; None if it is not part of the loss."""
        gradients = [self._bf16_gradient.get(index, master.grad) for index, master in enumerate(self.masters)]
        return [None if gradient is None else gradient.contiguous() for gradient in gradients]

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Round the masters into the model's matrices."""
        pairs = [(p, m) for p, m in zip(self.parameters, self.masters, strict=True) if p is not m]
        if pairs:
            torch._foreach_copy_([p.detach() for p, _ in pairs], [m for _, m in pairs])

    def state(self) -> dict[str, Tensor]:
        """Return the state of a resumed run: masters and both moments by parameter name, without copies."""
        state: dict[str, Tensor] = {}
        for name, master in zip(self.names, self.masters, strict=True):
            state[f"weight.{name}"] = master.detach()
            if self._muon is not None and master in self._muon.state:
                state[f"first_moment.{name}"] = self._muon.state[master]["momentum_buffer"]
                continue
            moments = self._adam.state[master]
            state[f"first_moment.{name}"] = moments["exp_avg"]
            state[f"second_moment.{name}"] = moments["exp_avg_sq"]
        return state

    def load(self, updates: int) -> None:
        """Apply the values that were loaded into the tensors of `state()`, the state after `updates` updates."""
        self.updates = updates
        for master in self._adam.state:
            self._adam.state[master]["step"].fill_(float(self.updates))
        self.copy_to_model()


def _move_gradient(of: weakref.ref[Optimizer], index: int, parameter: Tensor) -> None:
    """Move a bfloat16 parameter's gradient to a float32 sum after a backward pass."""
    optimizer = of()
    if optimizer is None:
        return
    gradient, parameter.grad = parameter.grad, None
    assert gradient is not None
    master, first = optimizer.masters[index], optimizer._bf16_gradient.pop(index, None)
    if optimizer._kernels is not None and first is None and master.grad is None:
        optimizer._bf16_gradient[index] = gradient  # enough if no second one comes
        return
    if master.grad is None:
        sum_ = optimizer._reusable_buffer.pop(index, None)
        earlier = gradient if first is None else first
        master.grad = earlier.float() if sum_ is None else sum_.copy_(earlier)
        if first is None:
            return
    if optimizer._kernels is not None:
        optimizer._kernels.sum_to(master.grad, gradient.contiguous(), master.grad)
    else:
        master.grad += gradient
