python tools/finetune_defaults.py gpt2-mini --data data --rows 200 --try epochs=3 --out defaults.jsonl
