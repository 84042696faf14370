headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/package/train.jsonl --show 2
