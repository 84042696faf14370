headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/source/train.jsonl --show 2
