headwater finetune --model quickstart/run/model --task classify --train reviews.csv \
    --text review --label stars --out reviews
headwater predict --model reviews new-reviews.csv --out labelled.jsonl
