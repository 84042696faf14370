headwater evaluate --list --tasks examples/extending/capitals.toml --data .
headwater evaluate --model quickstart/run/model --tasks examples/extending/capitals.toml --data . --out capitals
cat capitals/examples/capitals.total.jsonl
