headwater generate "The river" --model with-lora --max-tokens 20
