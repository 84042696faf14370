headwater corpus build 내_글/ --out corpus
headwater tokenizer train corpus --vocab-size 8192 --out tokenizer
headwater pack corpus --tokenizer tokenizer --out tokens
headwater pretrain recipes/gpt2-mini.toml --tokens tokens --out run --dry-run   # 비용을 먼저 알아보기
headwater pretrain recipes/gpt2-mini.toml --tokens tokens --out run
headwater generate "강물은" --model run
