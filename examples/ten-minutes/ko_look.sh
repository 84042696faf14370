head -3 후기.csv
headwater finetune --model gpt2-mini-ko --task classify --train 후기.csv --text 글 --label 라벨 --show 2
