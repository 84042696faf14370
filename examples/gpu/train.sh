torchrun --standalone --nproc-per-node=8 -m headwater pretrain gpt2-small \
    --tokens tokens --out run --dry-run
torchrun --standalone --nproc-per-node=8 --max-restarts=3 -m headwater pretrain gpt2-small \
    --tokens tokens --out run
