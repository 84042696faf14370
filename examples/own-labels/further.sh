headwater predict --model reviews new-rows.csv --out old.jsonl   # the old model, on labelled rows that it has not seen
headwater finetune --model quickstart/run/model --task classify --train all-reviews.csv --text review --label stars \
    --test new-rows.csv --out reviews-2
