"""The experiments that there are, in the order of the papers."""

from __future__ import annotations

from headwater.reproduce.experiment import Experiment
from headwater.reproduce.gpt1_perplexity import PERPLEXITY

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (PERPLEXITY,)}
