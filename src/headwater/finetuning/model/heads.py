"""The heads that fine-tuning adds, the model together with one of them, and the losses L2 and L3.

GPT-1's head: P(y | x) = softmax(h W_y), h the last block's output at the extract token (GPT-1 section 3.2,
equation 3), with a bias as in the authors' code; of several labels per row σ(h W_y), decided here. With full
attention h is the output at the first token (BERT, Devlin et al. 2019, section 3), and the second text has its own
segment row; of a bidirectional LSTM each half is taken at its last position. Similarity adds the vectors of both
orders before the layer; multiple choice has one output, and its softmax runs over the answers (section 3.3).

The pooled head reads one vector per text: the mean over its tokens, or the last one. Two texts are read
separately, and the vector of texts u and v, of length 1 each, is [u, v, |u − v|, u · v] (InferSent, Conneau et al.
2017). Where their order means nothing, as in similarity, it is [u + v, |u − v|, u · v]. The texts have no task
tokens around them: a GPT reads them alone, BERT between `[CLS]` and `[SEP]`.

L3 = L2 + λ · L1 is the task's loss and the auxiliary language-model loss on the same inputs: GPT-1's equations 4
and 5, averaged as in the authors' code: L2 over examples; L1 over the tokens of a sequence from the second to the
extract token, then over sequences. A batch's weights are those averages over the whole update, so that the losses
of micro-batches are summed.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import FolderError
from headwater.finetuning.model.batches import Batch, inference_batches
from headwater.finetuning.model.inputs import Encoded, Frame
from headwater.finetuning.rows.row import TaskName
from headwater.model import Backend, cross_entropy, padding_mask
from headwater.tokenizer import Tokenizer
from headwater.training import Objective

if TYPE_CHECKING:
    from headwater.finetuning.rows.labels import Labels
    from headwater.model import Model, ModelConfig

Pooled = Literal["mean", "last"]
# Logit of an answer that an example does not have.
ABSENT = -1e9
# Cosines are divided by this to be logits, during tuning only.
_TEMPERATURE = 0.1


class TaskOutput(NamedTuple):
    """The result of a forward pass: logits (examples, outputs) float32, hidden (sequences, time, width) float32.

    matrix: (vocabulary, width), which predicts tokens from `hidden`, with the same dropped entries, or None.
    """

    logits: Tensor
    hidden: Tensor
    matrix: Tensor | None


class TaskModel(nn.Module):
    """A language model and its head for one task."""

    def __init__(
        self,
        model: Model,
        task: TaskName,
        outputs: int,
        *,
        dropout: float = 0.1,
        seed: int = 0,
        head: nn.Linear | None = None,
        delimiter: int | None = None,
    ) -> None:
        """delimiter: the id of the token between two texts, needed by a model with segment rows."""
        super().__init__()
        self.model, self.task, self.dropout, self.delimiter = model, task, dropout, delimiter
        # `skip_init` does not use torch's global generator.
        self.head = head or nn.utils.skip_init(nn.Linear, model.config.output_width, outputs)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            nn.init.normal_(self.head.weight, std=model.config.init_deviation, generator=generator)
            nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch, with_matrix: bool = False) -> TaskOutput:
        """Return logits and hidden states of a batch; ABSENT for answers that an example does not have."""
        embeddings = self.model.embeddings() if with_matrix else None
        hidden = self.read(batch, embeddings=embeddings)  # (sequences, time, width)
        logits = self.classify(self.summary(hidden, batch), batch)
        return TaskOutput(logits, hidden, self.model.output_matrix(embeddings) if with_matrix else None)

    @torch.no_grad()
    def predict(self, encoded: Encoded, labels: Labels) -> tuple[npt.NDArray[np.float32], float]:
        """Return probabilities (examples, outputs or most answers), and L2 over the examples with a label.

        Raises FolderError for probabilities that are not finite.
        """
        targets = labels.probabilities(encoded)
        probabilities = np.zeros_like(targets if labels.target != "labels" else targets[:, : labels.outputs])
        device = self.head.weight.device
        loss = 0.0
        training = self.training
        self.eval()
        for chosen, batch in inference_batches(encoded, targets):
            logits = self(batch.to(device)).logits.cpu()
            shares = log_probabilities(logits, batch.targets)
            probabilities[chosen] = shares.exp().numpy()[:, : probabilities.shape[1]]
            loss -= float((shares * batch.targets).sum())
        self.train(training)
        require_finite(probabilities, "the model's probabilities")
        return probabilities, loss / max(1, int(encoded.known.sum()))

    def read(self, batch: Batch, **options: Any) -> Tensor:
        """Return the model's hidden states, (sequences, time, width); with padding and segments as needed."""
        config = self.model.config
        if not config.is_causal:
            options["mask"] = padding_mask(batch.extract + 1, batch.ids.shape[1])
        if config.segments > 1 and self.delimiter is not None:
            delimiters = batch.ids == self.delimiter
            options["segments"] = (delimiters.cumsum(dim=1) > delimiters.long()).long()
        hidden: Tensor = self.model.hidden(batch.ids, **options)
        return hidden

    def summary(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return one vector per sequence: (sequences, time, width) -> (sequences, width)."""
        config = self.model.config
        last = hidden[torch.arange(len(hidden), device=hidden.device), batch.extract]
        first = hidden[:, 0]
        if config.is_causal:
            return last
        return first if config.is_masked else torch.cat([last[:, : config.width], first[:, config.width :]], dim=1)

    def classify(self, pooled: Tensor, batch: Batch) -> Tensor:
        """(sequences, width) -> (examples, outputs or most answers) float32.

        An example's candidates, and both orders of a pair, share one dropout mask.
        """
        weight, bias = self.head.weight.float(), self.head.bias.float()
        if self.training and self.dropout:
            mask = functional.dropout(pooled.new_ones(batch.examples, pooled.shape[1]), self.dropout)
            pooled = pooled * mask[batch.owner]
        if self.task == "choice":
            scores = functional.linear(pooled, weight, bias).squeeze(1)  # (sequences,)
            logits = scores.new_full(batch.targets.shape, ABSENT)
            return logits.index_put((batch.owner, batch.slot), scores)
        if self.task == "similarity":
            pooled = pooled.new_zeros(batch.examples, pooled.shape[1]).index_add(0, batch.owner, pooled)
        return functional.linear(pooled, weight, bias)


class PooledModel(TaskModel):
    """A language model and a linear layer over `features`.

    While classes are tuned, `reads_cosines` is set: the rows of the layer are directions, and a logit is the
    cosine of one and the features, without dropout. It is not saved: the layer is fitted again afterwards.
    """

    def __init__(
        self, model: Model, task: TaskName, outputs: int, *, pooled: Pooled = "mean", dropout: float = 0.1
    ) -> None:
        width = model.config.output_width * {"classify": 1, "similarity": 3}.get(task, 4)
        head = nn.utils.skip_init(nn.Linear, width, outputs)
        super().__init__(model, task, outputs, dropout=dropout, head=head)
        self.pooled: Pooled = pooled
        self.reads_cosines = False

    def summary(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the vector of each text: (sequences, time, width) -> (sequences, width)."""
        if self.pooled == "last":
            return super().summary(hidden, batch)
        real = torch.arange(hidden.shape[1], device=hidden.device) <= batch.extract[:, None]
        return (hidden * real[:, :, None]).sum(dim=1) / (batch.extract + 1)[:, None]

    def features(self, vectors: Tensor) -> Tensor:
        """Return what the head reads: (sequences, width) -> (examples, features) float32."""
        vectors = vectors.float()
        if self.task == "classify":
            return vectors
        u, v = functional.normalize(vectors[0::2], dim=1), functional.normalize(vectors[1::2], dim=1)
        alone = [u + v] if self.task == "similarity" else [u, v]
        return torch.cat([*alone, (u - v).abs(), u * v], dim=1)

    def classify(self, pooled: Tensor, batch: Batch) -> Tensor:
        """(sequences, width) -> (examples, outputs) float32."""
        features = self.features(pooled)
        if self.reads_cosines:
            directions = functional.normalize(self.head.weight.float(), dim=1)
            return functional.normalize(features, dim=1) @ directions.T / _TEMPERATURE
        if self.training and self.dropout:
            features = functional.dropout(features, self.dropout)
        return functional.linear(features, self.head.weight.float(), self.head.bias.float())

    @torch.no_grad()
    def set_head(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> None:
        """Set the layer: weight (outputs, features), bias (outputs,)."""
        self.reads_cosines = False
        self.head.weight.copy_(torch.from_numpy(weight))
        self.head.bias.copy_(torch.from_numpy(bias))

    @torch.no_grad()
    def set_directions(self, features: npt.NDArray[np.float32], targets: npt.NDArray[np.float32]) -> None:
        """Make the layer's rows the mean directions of each class's features (Snell et al. 2017).

        features: (examples, features); targets: (examples, outputs), the probability of each. A class without a
        row begins away from all the others: the gradient of a cosine with 0 has no bound.
        """
        directions = functional.normalize(torch.from_numpy(features), dim=1)
        sums = torch.from_numpy(targets).T @ directions  # (outputs, features)
        sums[~sums.any(dim=1)] = -directions.mean(dim=0)
        self.head.weight.copy_(functional.normalize(sums, dim=1))
        self.reads_cosines = True

    @torch.no_grad()
    def read_features(
        self, encoded: Encoded, poolings: tuple[Pooled, ...]
    ) -> dict[Pooled, npt.NDArray[np.float32]]:
        """Return the features of all examples by pooling, from one pass and without dropout.

        Raises FolderError for features that are not finite.
        """
        values = {kind: np.empty((len(encoded), self.head.in_features), np.float32) for kind in poolings}
        before, training = self.pooled, self.training
        self.eval()
        for chosen, batch in inference_batches(encoded, np.zeros((len(encoded), 1), np.float32)):
            moved = batch.to(self.head.weight.device)
            hidden = self.read(moved)
            for pooling, features in values.items():
                self.pooled = pooling
                features[chosen] = self.features(self.summary(hidden, moved)).cpu().numpy()
        self.pooled = before
        self.train(training)
        for features in values.values():
            require_finite(features, "the base's features")
        return values


def text_frame(
    tokenizer: Tokenizer, config: ModelConfig, task: TaskName = "classify", members: Container[str] = ()
) -> Frame | None:
    """Return the tokens around a text that the pooled head reads; None if task tokens join the texts instead."""
    if task == "choice" or "gpt1" in members:
        return None
    before, after = tokenizer.frame if config.is_masked else ([], [])
    return Frame(tuple(before), (), tuple(after))


def require_finite(values: npt.NDArray[Any], name: str) -> None:
    """Raise FolderError unless all values are finite: a model's weights overflow otherwise."""
    if not np.isfinite(values).all():
        raise FolderError(f"{name} are not finite: the weights overflow", expected="finite numbers")


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the logarithms that the targets weigh: logits (examples, outputs) -> float32, of their shape.

    They are of the softmax or, for several labels, of σ(x) for present ones, then of σ(−x) for absent ones.
    """
    logits = logits.float()
    if targets.shape[1] == 2 * logits.shape[1]:
        return functional.logsigmoid(torch.cat([logits, -logits], dim=1))
    return logits.log_softmax(dim=1)


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


def l3(lambda_lm: float) -> Objective:
    """Return the objective L2 + `lambda_lm` · L1; for 0 it is L2 alone, and no tokens are predicted."""

    def objective(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output: TaskOutput = cast(TaskModel, model)(batch, with_matrix=lambda_lm != 0)
        task = class_loss(output.logits, batch)
        if lambda_lm == 0:
            return task, {"l2": task.detach()}
        language = language_model_loss(output, batch, cast(TaskModel, model).model.backend)
        return task + lambda_lm * language, {"l2": task.detach(), "l1": language.detach()}

    return objective
