headwater pretrain gpt2-mini --tokens tokens --out run
headwater pretrain --preset gpt2-mini --tokens tokens --out run-2 --set steps=2000 --set batch_size=32
