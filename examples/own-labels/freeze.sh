headwater finetune --model quickstart/run/model --task classify \
    --train quickstart/labels/source/train.jsonl \
    --validation quickstart/labels/source/validation.jsonl \
    --freeze --set epochs=10 --out packages-frozen
headwater report packages packages-frozen --out frozen.html
