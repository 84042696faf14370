# two machines: the same command on each, with the address of the first
torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node0:29500 --max-restarts=3 \
    -m headwater pretrain gpt2-medium --tokens tokens --out run
