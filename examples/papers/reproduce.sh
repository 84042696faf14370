headwater reproduce --list
headwater reproduce gpt1_perplexity gpt2_zero_shot --scale mini --data "$HEADWATER_DATA" --out reproduction
