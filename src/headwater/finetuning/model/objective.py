"""L3 = L2 + λ · L1: the task's loss and the auxiliary language-model loss on the same inputs.

These are GPT-1's equations 4 and 5, averaged as in the authors' code: L2 over examples; L1 over the tokens of a
sequence from the second to the extract token, then over sequences. A batch's weights are those averages over the
whole update, so that the losses of micro-batches are summed.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from headwater.finetuning.model.batches import Batch
from headwater.finetuning.model.head import TaskModel, TaskOutput, log_probabilities
from headwater.model import Backend, cross_entropy
from headwater.training import Objective


def class_loss(logits: Tensor, batch: Batch) -> Tensor:
    """L2 = −Σ weight · Σ_y p(y) log P(y | x): logits (examples, outputs) -> float32 scalar.

    p is 1 for the label, or shared between the two nearest levels of a score (Tai et al. 2015, section 4.2).
    Several labels are independent given x: their logarithms are added.
    """
    losses = -(batch.targets * log_probabilities(logits, batch.targets)).sum(dim=1)
    return (losses * batch.weights).sum()


def language_model_loss(output: TaskOutput, batch: Batch, backend: Backend | None = None) -> Tensor:
    """Return L1 over the task's own inputs, without padding: float32 scalar. `output` has the matrix."""
    assert output.matrix is not None
    return cross_entropy(
        output.hidden.flatten(0, 1),
        output.matrix,
        batch.next_ids.flatten(),
        batch.token_weights.flatten(),
        backend,
    )


def l2(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the task's loss."""
    loss = class_loss(model(batch).logits, batch)
    return loss, {"l2": loss.detach()}


def l3(lambda_lm: float) -> Objective:
    """Return the objective L2 + `lambda_lm` · L1; for 0 it is `l2`, which predicts no tokens."""
    if lambda_lm == 0:
        return l2

    def objective(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output: TaskOutput = cast(TaskModel, model)(batch, with_matrix=True)
        task = class_loss(output.logits, batch)
        language = language_model_loss(output, batch, cast(TaskModel, model).model.backend)
        return task + lambda_lm * language, {"l2": task.detach(), "l1": language.detach()}

    return objective
