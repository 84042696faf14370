headwater finetune --model quickstart/run/model --task classify --train reviews.csv \
    --text review --label stars --out reviews --epochs 6
