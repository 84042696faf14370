head -3 reviews.csv
headwater finetune --model gpt2-mini --task classify --train reviews.csv --text review --label stars --show 2
