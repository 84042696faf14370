headwater tokenizer train 내_글/ --vocab-size 16000 --out 한국어_토크나이저
headwater tokenizer compare gpt2 한국어_토크나이저 검증.txt
headwater tokenizer encode --tokenizer 한국어_토크나이저 --json "강물은 바다로 흐른다."
