torchrun --standalone --nproc-per-node=8 -m headwater pretrain gpt2-xl \
    --tokens tokens --out run --set shard=true
