headwater generate --model run/model --prompt "The river" --max-tokens 60 --top-k 40 --seed 1
headwater generate --model run/model --prompt "The river" --max-tokens 60 --color --seed 2
