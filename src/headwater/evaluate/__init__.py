"""Zero-shot evaluation: explicit protocols, their figures with errors, and yardsticks that need no model."""

from headwater.evaluate.evaluation import evaluate, run_task, select

__all__ = ["evaluate", "run_task", "select"]
