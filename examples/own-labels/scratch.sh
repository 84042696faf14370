headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/source/train.jsonl \
    --validation quickstart/labels/source/validation.jsonl \
    --set from_scratch=true --out packages-from-scratch
headwater report packages packages-from-scratch --out labels.html
