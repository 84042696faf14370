headwater pretrain --preset gpt2-micro --tokens tokens --out run --set epochs=4
