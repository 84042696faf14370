# two machines: the same on each, with the first one's address
torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node0:29500 --max-restarts=3 \
    -m headwater pretrain recipes/gpt2-medium.toml --tokens tokens --out run
