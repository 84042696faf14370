"""All experiments, in the order of the papers."""

from __future__ import annotations

from headwater.reproduce.experiment import Experiment
from headwater.reproduce.gpt1_ablations import ABLATIONS
from headwater.reproduce.gpt1_layers import LAYERS
from headwater.reproduce.gpt1_perplexity import PERPLEXITY
from headwater.reproduce.gpt1_tables import TABLES_2_TO_4
from headwater.reproduce.gpt1_updates import UPDATES
from headwater.reproduce.gpt2_compute_optimal import COMPUTE_OPTIMAL
from headwater.reproduce.gpt2_layer_norm import LAYER_NORM
from headwater.reproduce.gpt2_memorisation import MEMORISATION
from headwater.reproduce.gpt2_overlap import OVERLAP
from headwater.reproduce.gpt2_samples import SAMPLES
from headwater.reproduce.gpt2_shuffled import SHUFFLED
from headwater.reproduce.gpt2_tasks import TASKS
from headwater.reproduce.gpt2_zero_shot import ZERO_SHOT
from headwater.reproduce.objectives import OBJECTIVES
from headwater.reproduce.scaling import SCALING

_GPT1 = (PERPLEXITY, TABLES_2_TO_4, ABLATIONS, LAYERS, UPDATES)
_GPT2 = (LAYER_NORM, ZERO_SHOT, SHUFFLED, TASKS, OVERLAP, MEMORISATION, SAMPLES, SCALING, COMPUTE_OPTIMAL)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*_GPT1, *_GPT2, OBJECTIVES)}
