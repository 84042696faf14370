headwater pretrain gpt2-mini --tokens tokens --out watched --set steps=2000 --set sample_every=200 --set "sample_prompt=The river"
headwater generate "The river" --model watched   # also while it trains, and after Ctrl-C
headwater report watched --out watched.html
