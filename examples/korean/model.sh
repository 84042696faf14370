headwater corpus build 내_글/ --out 말뭉치
headwater pack 말뭉치 --tokenizer 한국어_토크나이저 --out 토큰
headwater pretrain gpt2-mini --tokens 토큰 --out 학습   # --dry-run: 비용만 알아봅니다
headwater generate "강물은" --model 학습
