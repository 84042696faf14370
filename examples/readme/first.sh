headwater generate "The river" --seed 1
