python tools/finetune_defaults.py gpt2-mini --data data --rows 200 --try epochs=10 --out defaults.jsonl
