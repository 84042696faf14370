headwater evaluate --model gpt2-small --tasks lambada.openai,wikitext-2,wsc273 \
    --data "$HEADWATER_DATA" --out zero-shot
headwater report zero-shot --out zero-shot.html
