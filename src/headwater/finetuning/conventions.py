"""What scikit-learn expects of an estimator besides `fit` and `predict`: parameters, clones and tags."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from headwater.errors import UsageError
from headwater.finetuning.rows.row import Target


class NotFitted(UsageError, NotFittedError):  # type: ignore[misc]
    """An estimator was used before `fit`."""


class Conventions(BaseEstimator):  # type: ignore[misc]
    """The base of `Estimator`."""

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted estimator that shares the parameters: a loaded base is never changed."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fine_tuned_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags, scores = super().__sklearn_tags__(), self._target() == "score"
        tags.estimator_type = "regressor" if scores else "classifier"
        tags.classifier_tags = None if scores else ClassifierTags(multi_label=self._target() == "labels")
        tags.regressor_tags = RegressorTags() if scores else None
        tags.target_tags.required = True
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def _target(self) -> Target:
        raise NotImplementedError
