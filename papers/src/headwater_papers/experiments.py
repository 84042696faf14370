"""All experiments, in the order of the papers."""

from __future__ import annotations

from headwater_papers.experiment import Experiment
from headwater_papers.gpt1_ablations import ABLATIONS
from headwater_papers.gpt1_convergence import CONVERGENCE
from headwater_papers.gpt1_distances import DISTANCES
from headwater_papers.gpt1_korean import KOREAN
from headwater_papers.gpt1_layers import LAYERS
from headwater_papers.gpt1_perplexity import PERPLEXITY
from headwater_papers.gpt1_positions import POSITIONS
from headwater_papers.gpt1_quirks import QUIRKS_OF_THE_CODE
from headwater_papers.gpt1_tables import TABLES_2_TO_4
from headwater_papers.gpt1_updates import UPDATES
from headwater_papers.gpt2_appendix import APPENDIX
from headwater_papers.gpt2_compute_optimal import COMPUTE_OPTIMAL
from headwater_papers.gpt2_copies import COPIES
from headwater_papers.gpt2_lambada import LAMBADA
from headwater_papers.gpt2_layer_norm import LAYER_NORM
from headwater_papers.gpt2_memorisation import MEMORISATION
from headwater_papers.gpt2_overlap import OVERLAP
from headwater_papers.gpt2_samples import SAMPLES
from headwater_papers.gpt2_shuffled import SHUFFLED
from headwater_papers.gpt2_tasks import TASKS
from headwater_papers.gpt2_translations import TRANSLATIONS
from headwater_papers.gpt2_zero_shot import ZERO_SHOT
from headwater_papers.objectives import OBJECTIVES
from headwater_papers.scaling import SCALING

_GPT1 = (
    POSITIONS,
    DISTANCES,
    PERPLEXITY,
    TABLES_2_TO_4,
    ABLATIONS,
    CONVERGENCE,
    LAYERS,
    UPDATES,
    KOREAN,
    QUIRKS_OF_THE_CODE,
)
_GPT2 = (
    LAYER_NORM,
    ZERO_SHOT,
    LAMBADA,
    SHUFFLED,
    TASKS,
    TRANSLATIONS,
    OVERLAP,
    MEMORISATION,
    COPIES,
    SAMPLES,
    APPENDIX,
    SCALING,
    COMPUTE_OPTIMAL,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*_GPT1, *_GPT2, OBJECTIVES)}
