"""What the estimators have in common, in scikit-learn's conventions.

    clf = hw.Classifier(base="runs/small/model").fit(texts, labels)
    clf.predict(texts); clf.predict_proba(texts); clf.save(folder); hw.Classifier.load(folder)

Parameters are stored as given and everything learned ends in an underscore, so `clone`, `cross_val_score`,
`GridSearchCV` and `Pipeline` work. scikit-learn itself is not needed: what it asks of an estimator (its tags) is
imported when it asks. Texts are lists, NumPy arrays, pandas or polars columns.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.datasets.rows import Raw, Task
from headwater.errors import DataError, MismatchError, UsageError, nearest
from headwater.finetune import baseline, check
from headwater.finetune.baseline import ClassWeight
from headwater.finetune.examples import Labels, class_name, learn_labels, to_examples
from headwater.finetune.fine_tuned import FineTuned
from headwater.finetune.finetuning import load_tokenizer
from headwater.finetune.inputs import TaskExample, encode
from headwater.finetune.metrics import pearson
from headwater.finetune.training import FinetuneConfig, peak_rate, prepare_base, train_task
from headwater.model.io.folder import load_model
from headwater.storage.files import read_json, write_json
from headwater.storage.progress import SILENT, PlainProgress
from headwater.storage.stage import Stage
from headwater.train.loop import Precision
from headwater.train.parallel import choose_device
from headwater.train.run import OnUpdate

ESTIMATOR_FILE = "estimator.json"


class Estimator:
    """What the four have in common. Use one of them.

    base: a model folder, a model that ships, or what `hw.load` returned. The other parameters are those of
    `headwater finetune`, with the paper's defaults; without a learning rate it goes by the model's width, as
    `learning_rate_` then says. freeze: keep the base as it is, and learn a head over a mixture of its layers.
    `validation_share` of the rows choose the best epoch. class_weight: "balanced", or weights by the class's name.
    verbose: print the progress on stderr.
    """

    task: ClassVar[Task]
    scores: ClassVar[bool] = False  # whether task "classify" predicts a score

    def __init__(
        self,
        base: Any = shipped.DEFAULT,
        *,
        epochs: float = 3,
        learning_rate: float | None = None,
        batch_size: int = 32,
        lambda_lm: float = 0.5,
        dropout: float = 0.1,
        validation_share: float = 0.1,
        patience: int | None = None,
        freeze: bool = False,
        from_scratch: bool = False,
        class_weight: ClassWeight = None,
        precision: Precision = "auto",
        device: str = "auto",
        verbose: bool = False,
        seed: int = 1,
    ) -> None:
        self.base = base
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.lambda_lm = lambda_lm
        self.dropout = dropout
        self.validation_share = validation_share
        self.patience = patience
        self.freeze = freeze
        self.from_scratch = from_scratch
        self.class_weight = class_weight
        self.precision = precision
        self.device = device
        self.verbose = verbose
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, on_update: OnUpdate | None = None) -> Self:
        """Fine-tune the base on rows X with labels y; return self.

        sample_weight: the weight of each row in the loss of the labels. on_update: called after every update with
        its step, loss, learning rate and other figures, as a dictionary.

        Raises DataError, naming the row, for rows that cannot be learned from.
        """
        y = as_list(y)
        names = self._names(y)
        segments = [self._segments(row, number) for number, row in enumerate(as_list(X), 1)]
        if len(segments) != len(names):
            raise DataError(f"there are {len(segments):,} rows and {len(names):,} labels", expected="one each")
        rows = [Raw(s, name, number) for number, (s, name) in enumerate(zip(segments, names, strict=True), 1)]
        usable = check.usable(rows, self.task, "X").rows
        labels = self._labels(usable)
        self.classes_ = self._classes(labels, y)
        config = self._config()
        kept, held = check.split(usable, config.validation_share, config.seed, labels)
        if not kept or not held:
            raise DataError(
                f"{len(usable)} rows are too few", expected="at least two rows of each class, of texts that differ"
            )
        model, tokenizer = prepare_base(config, *self._base())
        parts = [
            encode(to_examples(part, labels, "X"), self.task, tokenizer, model.config.context)
            for part in (kept, held)
        ]
        self.learning_rate_ = peak_rate(config, model.config.width)
        outcome = train_task(
            config,
            model,
            tokenizer,
            parts[0],
            parts[1],
            labels,
            PlainProgress() if self.verbose else SILENT,
            sample_weight=_weights(sample_weight, len(rows), kept),
            on_update=on_update,
        )
        outcome.settle()
        self._compared = (
            outcome.metric,
            outcome.curve[[point["step"] for point in outcome.curve].index(outcome.best_step)][outcome.metric],
            [([row.segments for row in part], one.targets) for part, one in zip((kept, held), parts, strict=True)],
        )
        self.fine_tuned_ = outcome.fine_tuned
        self.curve_ = outcome.curve
        self.n_features_in_ = 1
        return self

    def compare(self) -> dict[str, Any]:
        """Compare the model with a baseline, TF-IDF with a linear model, on the held-out rows of `fit`.

        Returns {"metric", "model": {"value", "interval"}, "baseline": {"name", "value", "interval", "rows"},
        "count", "beaten"}; `beaten` is False where the model is no better. Raises UsageError where this estimator
        was not fitted here.
        """
        fine_tuned = self._fitted()
        if not hasattr(self, "_compared"):
            raise UsageError(
                f"this {type(self).__name__} was loaded from a folder",
                repair="compare() needs the rows of fit(X, y)",
            )
        metric, figures, (train, held) = self._compared
        found = baseline.compare(
            self.task,
            fine_tuned.labels,
            metric,
            train,
            {"held-out": held},
            seed=self.seed,
            class_weight=self.class_weight,
        )["held-out"]
        return {
            "metric": metric,
            "model": figures,
            "baseline": found,
            "count": len(held[1]),
            "beaten": figures["value"] > found["value"],
        }

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """(rows, classes), in the order of `classes_`; for MultipleChoice (rows, most answers)."""
        rows = as_list(X)
        examples = [TaskExample(self._segments(row, n), None, n) for n, row in enumerate(rows, 1)]
        fine_tuned = self._fitted()
        if not examples:
            return np.zeros((0, fine_tuned.labels.outputs), dtype=np.float32)
        return fine_tuned.probabilities(fine_tuned.encode(examples))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(rows,): the likeliest class of each, as y had it; for scores the expected one."""
        decided = self._fitted().decide(self.predict_proba(X))
        return decided if self.classes_ is None else self.classes_[decided.astype(np.int64)]

    def score(self, X: Any, y: Any) -> float:
        """Accuracy on labelled rows; Pearson's correlation for scores."""
        predicted, truth = self.predict(X), np.asarray(as_list(y))
        if self._target() == "score":
            return float(pearson(truth.astype(np.float64), predicted.astype(np.float64)))
        return float(np.mean(predicted == truth))

    def save(self, folder: str | Path) -> None:
        """Write a fine-tuned model folder, which `load` and `headwater predict` open on any machine.

        Raises FolderError when the folder holds something else.
        """
        fine_tuned = self._fitted()
        parameters = {k: v for k, v in self.get_params().items() if k != "base"}
        stage = Stage(
            Path(folder),
            kind="model",
            config={"task": self.task, **parameters, "weights": _fingerprint(fine_tuned)},
            inputs={"base": shipped.resolve(self.base)} if isinstance(self.base, str | Path) else {},
            seed=self.seed,
        )
        if stage.is_complete():
            return
        with stage.write() as work:
            fine_tuned.save(work)
            described: dict[str, Any] = {"parameters": parameters, "label_type": _type_name(self.classes_)}
            write_json(work / ESTIMATOR_FILE, described)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote, or one around a folder of `headwater finetune`; `base` is the folder.

        Raises MismatchError when the folder was fine-tuned for another task.
        """
        folder = Path(folder)
        fine_tuned = FineTuned.load(folder, device=choose_device("auto", training=False))
        scores = fine_tuned.labels.target == "score"
        if fine_tuned.task != cls.task or (fine_tuned.task == "classify" and scores != cls.scores):
            raise MismatchError(
                f"{folder} was fine-tuned for task {'regress' if scores else fine_tuned.task}",
                expected=f"the task of {cls.__name__}",
            )
        described: dict[str, Any] = {"parameters": {}, "label_type": "str"}
        if (folder / ESTIMATOR_FILE).is_file():
            described = read_json(folder / ESTIMATOR_FILE)
        estimator = cls(folder, **described["parameters"])
        estimator.fine_tuned_ = fine_tuned
        estimator.classes_ = estimator._restored(fine_tuned.labels, described["label_type"])
        estimator.n_features_in_ = 1
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as they were given."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; raises UsageError, naming the nearest, for one that does not exist."""
        names = self._parameter_names()
        for name, value in parameters.items():
            if name not in names:
                raise UsageError(
                    f"{type(self).__name__} has no parameter {name!r}", repair=nearest(name, names).capitalize()
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_clone__(self) -> Self:
        """Unfitted, with the very same parameters: a loaded base is shared, as nothing here changes it."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fine_tuned_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        scores = self._target() == "score"
        return Tags(
            estimator_type="regressor" if scores else "classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=None if scores else ClassifierTags(),
            regressor_tags=RegressorTags() if scores else None,
            input_tags=InputTags(two_d_array=False, string=True),
        )

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        """The texts of one row."""
        raise NotImplementedError

    def _target(self) -> Literal["class", "score"] | None:
        return "class"

    def _labels(self, rows: list[Raw]) -> Labels:
        return learn_labels(rows, self.task, self._target(), "y")

    def _names(self, y: list[Any]) -> list[str | int | float]:
        """Labels as the rows carry them."""
        for number, label in enumerate(y, 1):
            if label is None or (isinstance(label, float) and np.isnan(label)):
                raise DataError(f"y has no label in row {number}", repair="Remove that row, or label it")
        kinds = {type(label) for label in y}
        numbers = [label for label in y if isinstance(label, int | float)]
        if numbers and len(numbers) < len(y):
            raise DataError(
                f"y mixes {' and '.join(sorted(k.__name__ for k in kinds))} labels", expected="one kind"
            )
        if (fractional := next((label for label in numbers if label != int(label)), None)) is not None:
            raise DataError(
                f"y has the number {fractional!r}", expected="classes", repair="For scores use hw.Regressor"
            )
        return [class_name(label) for label in y]

    def _classes(self, labels: Labels, y: list[Any]) -> npt.NDArray[Any] | None:
        """The classes as y has them, in the order of the head's outputs: those of rows with a text."""
        by_name = {class_name(label): label for label in y}
        return np.array([by_name[name] for name in labels.names])

    def _restored(self, labels: Labels, label_type: str) -> npt.NDArray[Any] | None:
        types: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": "true".__eq__}
        convert = types.get(label_type, str)
        return np.array([convert(name) for name in labels.names])

    def _base(self) -> tuple[Any, Any]:
        if self.base is None:
            raise UsageError(
                f"{type(self).__name__} has no base model",
                repair=f'Give a model folder: {type(self).__name__}(base="runs/small/model")',
            )
        if isinstance(self.base, str | Path):
            folder = shipped.resolve(self.base)
            return load_model(folder, device=choose_device(self.device)), load_tokenizer(folder)
        if not hasattr(self.base, "tokenizer"):
            raise UsageError(
                f"base is of the type {type(self.base).__name__}",
                expected="a model folder, a model that ships, or what hw.load returned",
            )
        return self.base.model, self.base.tokenizer

    def _config(self) -> FinetuneConfig:
        parameters = {k: v for k, v in self.get_params().items() if k not in {"base", "verbose"} and v is not None}
        return FinetuneConfig.build(
            parameters | {"task": self.task, "target": self._target()}, source=type(self).__name__
        )

    def _fitted(self) -> FineTuned:
        if not self.__sklearn_is_fitted__():
            raise _not_fitted(type(self).__name__)
        return self.fine_tuned_

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)


def as_list(column: Any) -> list[Any]:
    """A list, array, or column of pandas or polars as a list of plain values; a table as a list of rows."""
    if isinstance(column, str | bytes):
        raise UsageError("a lone text was given where a column belongs", repair="Put it in a list: [text]")
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    values = column.tolist() if hasattr(column, "tolist") else column
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _weights(given: Any, count: int, kept: list[Raw]) -> npt.NDArray[np.float64] | None:
    """Return the weights of the rows that are trained on."""
    if given is None:
        return None
    weights = np.asarray(as_list(given), dtype=np.float64)
    if weights.shape != (count,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DataError(
            f"sample_weight has {weights.size:,} weights for {count:,} rows, or a wrong one",
            expected="a number of 0 or more a row, not all of them 0",
        )
    return weights[[row.row - 1 for row in kept]]


def _not_fitted(name: str) -> Exception:
    """Return the error of an estimator that is not fitted, scikit-learn's and ours in one."""
    from sklearn.exceptions import NotFittedError

    class NotFitted(UsageError, NotFittedError):  # type: ignore[misc]
        pass

    return NotFitted(f"this {name} is not fitted", repair="Call fit(X, y) first")


def _type_name(classes: npt.NDArray[Any] | None) -> str:
    return "float" if classes is None else type(classes.tolist()[0]).__name__


def _fingerprint(fine_tuned: FineTuned) -> str:
    """A hash of the weights, so that a folder with other ones is not taken for this."""
    digest = hashlib.sha256()
    for parameter in fine_tuned.model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
