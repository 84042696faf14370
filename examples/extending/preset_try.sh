headwater pretrain gpt2-atto --tokens quickstart/tokens --out atto --dry-run
headwater pretrain gpt2-atto --tokens quickstart/tokens --out atto
python -m pytest tests/pretraining/test_recipes.py tests/model/test_transformer.py -m "not slow"
