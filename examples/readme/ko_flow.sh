headwater corpus build 내_글/ --out corpus
headwater tokenizer train corpus --vocab-size 8192 --out tokenizer
headwater pack corpus --tokenizer tokenizer --out tokens
headwater pretrain gpt2-mini --tokens tokens --out run   # --dry-run: 비용만 알아봅니다
headwater generate "강물은" --model run
headwater serve --model run   # http://127.0.0.1:8000 에 페이지와 OpenAI 호환 API가 열립니다
