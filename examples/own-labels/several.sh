headwater finetune --model quickstart/run/model --task classify --train topics.csv \
    --text review --label delivery,price,quality --set target=labels --out topics
headwater predict --model topics topics.csv --out topics.jsonl
