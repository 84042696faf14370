# one machine, four GPUs
torchrun --standalone --nproc-per-node=4 --max-restarts=3 -m headwater pretrain gpt2-small \
    --tokens tokens --out run
