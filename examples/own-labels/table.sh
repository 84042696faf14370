headwater finetune --model quickstart/run/model --task classify --train reviews.csv \
    --text review --label stars --learning-rate 1e-3 --out reviews
headwater predict --model reviews new-reviews.csv --out labelled.jsonl
