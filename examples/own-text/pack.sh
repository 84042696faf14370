headwater pack corpus --tokenizer tokenizer --out tokens
