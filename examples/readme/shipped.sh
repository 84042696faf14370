headwater generate --model gpt2-mini --prompt "The river" --max-tokens 60 --top-k 40 --seed 1
headwater doctor --model gpt2-mini   # what it is, and what it was made from
