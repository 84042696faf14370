cp examples/extending/verbs.py my_tasks.py
headwater evaluate --list --tasks my_tasks:TASKS --data .
headwater evaluate --model quickstart/run/model --tasks my_tasks:TASKS --data . --out verbs
cat verbs/examples/verbs.agreement.jsonl
headwater evaluate --model quickstart/run/model --tasks examples/extending/capitals.toml --data . --out capitals
