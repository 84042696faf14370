headwater finetune-sets rte,mrpc --model gpt1 --data "$HEADWATER_DATA/finetune" --out sets
cat sets/table.md
