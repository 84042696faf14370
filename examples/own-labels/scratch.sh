headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/package/train.jsonl \
    --validation quickstart/labels/package/validation.jsonl \
    --from-scratch --out packages-from-scratch
headwater report packages packages-from-scratch --out labels.html
