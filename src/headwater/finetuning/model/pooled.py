"""A head over one vector per text: the mean over its tokens, or the last one. Two texts are read separately.

The vector of two texts u and v, of length 1 each, is [u, v, |u − v|, u · v] (InferSent, Conneau et al. 2017).
Where their order means nothing, as in similarity, it is [u + v, |u − v|, u · v]. The texts have no task tokens
around them: a GPT reads them alone, BERT between `[CLS]` and `[SEP]`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.finetuning.model.batches import Batch, inference_batches
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.model.ngrams import NGRAMS, with_ngrams
from headwater.finetuning.rows.row import POOLED_RECIPES, TaskName
from headwater.tokenizer import Template, Tokenizer

if TYPE_CHECKING:
    from headwater.finetuning.rows.labels import Labels
    from headwater.model import Model, ModelConfig

Pooled = Literal["mean", "last"]
# Cosines are divided by this to be logits, during tuning only.
_TEMPERATURE = 0.1


def text_template(tokenizer: Tokenizer, config: ModelConfig) -> Template:
    """Return the tokens before and after a text that a model reads alone."""
    before, after = tokenizer.frame if config.is_masked else ([], [])
    return Template(tuple(before), (), tuple(after))


def sequences_of(recipe: str, tokenizer: Tokenizer, config: ModelConfig) -> dict[str, Any]:
    """Return the arguments of `inputs.encode` for a recipe; none for the paper's."""
    pooled = recipe in POOLED_RECIPES
    return {"template": text_template(tokenizer, config), "apart": True} if pooled else {}


class PooledModel(TaskModel):
    """A language model and a linear layer over `features`.

    While classes are tuned, `reads_cosines` is set: the rows of the layer are directions, and a logit is the
    cosine of one and the features, without dropout. It is not saved: the layer is fitted again afterwards.
    lexical: the layer reads TF-IDF of the text's n-grams too, whose inverse frequencies are a buffer of the head.
    """

    def __init__(
        self,
        model: Model,
        task: TaskName,
        outputs: int,
        template: Template,
        *,
        dropout: float = 0.1,
        seed: int = 0,
        lexical: bool = False,
    ) -> None:
        width = model.config.output_width * {"classify": 1, "similarity": 3}.get(task, 4)
        head = nn.utils.skip_init(nn.Linear, width + NGRAMS * lexical, outputs)
        if lexical:
            head.register_buffer("idf", torch.ones(NGRAMS))
        super().__init__(model, task, outputs, dropout=dropout, seed=seed, head=head)
        self.template, self.reads_cosines, self.lexical = template, False, lexical
        self.pooled: Pooled = "mean"

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
        if batch.ngrams is not None:
            features = torch.cat(
                [features, functional.normalize(batch.ngrams * self.head.get_buffer("idf"), dim=1)], dim=1
            )
        if self.reads_cosines:
            directions = functional.normalize(self.head.weight.float(), dim=1)
            return functional.normalize(features, dim=1) @ directions.T / _TEMPERATURE
        if self.training and self.dropout:
            features = functional.dropout(features, self.dropout)
        return functional.linear(features, self.head.weight.float(), self.head.bias.float())

    @torch.no_grad()
    def set_directions(self, encoded: Encoded, labels: Labels) -> None:
        """Make the layer's rows the mean directions of each class's features (Snell et al. 2017).

        A class without a row begins away from all the others: the gradient of a cosine with 0 has no bound.
        """
        assert encoded.features is not None
        directions = functional.normalize(torch.from_numpy(encoded.features[self.pooled]), dim=1)
        sums = torch.from_numpy(labels.probabilities(encoded)).T @ directions  # (outputs, features)
        sums[~sums.any(dim=1)] = -directions.mean(dim=0)
        self.head.weight.copy_(functional.normalize(sums, dim=1))
        self.reads_cosines = True

    def continue_from(self, start: TaskModel) -> None:
        """See `TaskModel`; both read the same vector of a text."""
        super().continue_from(start)
        assert isinstance(start, PooledModel)
        self.pooled = start.pooled

    @torch.no_grad()
    def with_features(self, encoded: Encoded) -> Encoded:
        """Return `encoded` with the features of all examples by pooling, from one pass and without dropout.

        They are sparse, with the n-grams last, of a lexical model.
        An encoder has the mean alone, which it was trained for.
        """
        poolings: tuple[Pooled, ...] = ("mean", "last") if self.model.config.is_causal else ("mean",)
        width = self.head.in_features - NGRAMS * self.lexical
        found: dict[str, Any] = {one: np.empty((len(encoded), width), np.float32) for one in poolings}
        before, training = self.pooled, self.training
        self.eval()
        for chosen, batch in inference_batches(encoded, np.zeros((len(encoded), 1), np.float32)):
            moved = batch.to(self.head.weight.device)
            hidden = self.read(moved)
            for pooling in poolings:
                self.pooled = pooling
                found[pooling][chosen] = self.features(self.summary(hidden, moved)).cpu().numpy()
        self.pooled = before
        self.train(training)
        if self.lexical:
            idf = self.head.get_buffer("idf").cpu().numpy()
            found = {pooling: with_ngrams(one, encoded.ngrams, idf) for pooling, one in found.items()}
        return replace(encoded, features=found)
