headwater generate "The river" --model run/model --max-tokens 60
echo "In the morning" | headwater generate --model run/model --max-tokens 60 --seed 2
