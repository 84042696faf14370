headwater pretrain recipes/gpt2-atto.toml --tokens quickstart/tokens --out atto --dry-run
headwater pretrain recipes/gpt2-atto.toml --tokens quickstart/tokens --out atto
python -m pytest tests/pretrain/test_recipes.py tests/model/test_transformer.py -m "not slow"
