headwater generate "이 영화는" --model gpt2-mini-ko --seed 1
