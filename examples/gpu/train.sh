torchrun --standalone --nproc-per-node=8 -m headwater pretrain recipes/gpt2-small.toml \
    --tokens tokens --out run --dry-run
torchrun --standalone --nproc-per-node=8 --max-restarts=3 -m headwater pretrain recipes/gpt2-small.toml \
    --tokens tokens --out run
