make quickstart ARGS="--text 내_글/ --minutes 20 --out 내_모델"   # .txt, .md, .jsonl, .parquet
