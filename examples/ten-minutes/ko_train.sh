headwater finetune --model gpt2-mini-ko --task classify --train 후기.csv --text 글 --label 라벨 --out 분류기
headwater predict --model 분류기 새_후기.csv --out 결과.csv
