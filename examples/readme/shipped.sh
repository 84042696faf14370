headwater generate "The river" --model gpt2-mini --max-tokens 60 --seed 1
headwater doctor --model gpt2-mini   # what it is, and what it was made from
