headwater tokenizer train SOURCE --kind gpt2 --vocab-size 32000 --out DIR
