from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

from headwater.config import read_recipe
from headwater.pretraining import PretrainConfig, pretrain

if __name__ == "__main__":
    config = PretrainConfig.build(read_recipe("gpt2-mini"), {"steps": 7, "validation_windows": 1})
    with profile(
        activities=[ProfilerActivity.CPU],  # and ProfilerActivity.CUDA on a GPU
        schedule=schedule(wait=2, warmup=1, active=3),
    ) as profiler:
        pretrain(config, Path("tokens"), Path("profiled"), on_update=lambda line: profiler.step())
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
