for change in "" --no-auxiliary --from-scratch; do
    headwater finetune --model gpt1-nano/model --task classify --train train.tsv \
        --test test.tsv --set recipe=gpt1 $change --out "ablation$change"
done
headwater report ablation* --out ablations.html
