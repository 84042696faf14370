korean=$HEADWATER_DATA/train-text/korean
headwater tokenizer train $korean/nsmc_reviews.txt $korean/krv1961_bible_ko.txt \
    $korean/kolaw_constitution.txt $korean/ChatbotData.csv --vocab-size 32000 --out korean
headwater tokenizer compare gpt2 korean $korean/korquad_dev_wikipedia_ko.txt
headwater tokenizer encode "대한민국의 주권은 국민에게 있다." --tokenizer korean --json
