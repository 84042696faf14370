headwater finetune --model gpt2-mini --task classify --train reviews.csv --text review --label stars --out reviews
headwater predict --model reviews new-reviews.csv --out labelled.csv
