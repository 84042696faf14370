headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/package/train.jsonl \
    --validation quickstart/labels/package/validation.jsonl \
    --set from_scratch=true --out packages-from-scratch
headwater report packages packages-from-scratch --out labels.html
