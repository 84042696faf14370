headwater finetune --model gpt2-mini-ko --task classify --train ChatbotData.csv \
    --text Q --label label --out 주제_분류기_2
headwater predict --model 주제_분류기_2 ChatbotData.csv --out 결과.csv --limit 100
