headwater finetune --model gpt1 --task-set rte,mrpc --data "$HEADWATER_DATA/finetune" --out sets
cat sets/table.md
