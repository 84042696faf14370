headwater pack corpus --tokenizer gpt2-mini --out tokens-mini
headwater pretrain --from gpt2-mini --tokens tokens-mini --out run-mini --set batch_size=16 --set steps=72
headwater generate "The river" --model run-mini
