headwater pack corpus --tokenizer gpt2-mini --out mini-tokens
headwater pretrain --from gpt2-mini --tokens mini-tokens --out continued --set steps=500
