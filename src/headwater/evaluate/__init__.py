"""Zero-shot evaluation: explicit protocols, figures with errors, and yardsticks without a model."""

from headwater.evaluate.evaluation import evaluate, run_task, select

__all__ = ["evaluate", "run_task", "select"]
