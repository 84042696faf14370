headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/source/train.jsonl \
    --validation quickstart/labels/source/validation.jsonl \
    --out packages
