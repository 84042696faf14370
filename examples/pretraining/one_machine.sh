# one machine, four GPUs
torchrun --standalone --nproc-per-node=4 --max-restarts=3 -m headwater pretrain recipes/gpt2-small.toml \
    --tokens tokens --out run
