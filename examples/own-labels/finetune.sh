headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/package/train.jsonl \
    --validation quickstart/labels/package/validation.jsonl \
    --out packages
