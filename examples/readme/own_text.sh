make quickstart ARGS="--text my_texts/ --minutes 20 --out my-model"   # your own .txt, .md, .jsonl, .parquet
