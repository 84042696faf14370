for change in lambda_lm=0.5 lambda_lm=0 from_scratch=true; do
    headwater finetune --model gpt1-nano/model --task classify --train train.tsv \
        --test test.tsv --set recipe=gpt1 --set $change --out "ablation-$change"
done
headwater report ablation* --out ablations.html
