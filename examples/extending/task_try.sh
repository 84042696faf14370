headwater evaluate --list --data . | grep verbs
headwater evaluate --model quickstart/run/model --tasks verbs --data . --out verbs
cat verbs/examples/verbs.agreement.jsonl
