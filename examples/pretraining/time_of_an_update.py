from torch.profiler import ProfilerActivity, profile, schedule

import headwater as hw

if __name__ == "__main__":
    with profile(
        activities=[ProfilerActivity.CPU],  # and ProfilerActivity.CUDA on a GPU
        schedule=schedule(wait=2, warmup=1, active=3),
    ) as profiler:
        hw.pretrain(
            "tokens",
            "profiled",
            recipe="gpt2-mini",
            steps=7,
            settings={"validation_windows": 1},
            on_update=lambda line: profiler.step(),
        )
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
