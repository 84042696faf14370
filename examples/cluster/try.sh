torchrun --standalone --nproc-per-node=2 -m headwater pretrain --preset gpt2-pico \
    --tokens tokens --out two-ranks --set steps=50 --set precision=fp32
headwater pretrain --preset gpt2-pico --tokens tokens --out one-rank --set steps=50 --set precision=fp32
tail -n 1 two-ranks/metrics.jsonl one-rank/metrics.jsonl
