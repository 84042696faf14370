headwater corpus build my_texts/ --out corpus
headwater tokenizer train corpus --vocab-size 4096 --out tokenizer
headwater pack corpus --tokenizer tokenizer --out tokens
headwater pretrain gpt2-mini --tokens tokens --out run   # --dry-run: what will it cost?
headwater generate "The river" --model run
headwater serve --model run   # a page and an OpenAI-compatible API at http://127.0.0.1:8000
