torchrun --standalone --nproc-per-node=8 -m headwater pretrain recipes/gpt2-xl.toml \
    --tokens tokens --out run --set shard=true
