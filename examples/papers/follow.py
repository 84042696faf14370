import os
from pathlib import Path

from headwater.config import read_recipe
from headwater.pretraining import PretrainConfig, pretrain
from headwater_papers.during import Follower

here, data = Path.cwd(), Path(os.environ["HEADWATER_DATA"])
config = PretrainConfig.build(read_recipe("gpt1-nano"), source="gpt1-nano")
tasks = ["dprd.substitution"]
follower = Follower(tasks, here / "tokens", [data], config.architecture, every=200)
pretrain(config, here / "tokens", here / "followed", more_figures=follower)
