"""The experiments that there are, in the order of the papers."""

from __future__ import annotations

from headwater.reproduce.experiment import Experiment
from headwater.reproduce.gpt1_ablations import ABLATIONS
from headwater.reproduce.gpt1_layers import LAYERS
from headwater.reproduce.gpt1_perplexity import PERPLEXITY
from headwater.reproduce.gpt1_tables import TABLES_2_TO_4
from headwater.reproduce.gpt1_updates import UPDATES

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (PERPLEXITY, TABLES_2_TO_4, ABLATIONS, LAYERS, UPDATES)
}
