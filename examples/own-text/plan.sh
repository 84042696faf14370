headwater pretrain gpt2-micro --tokens tokens --out run --set epochs=8 --dry-run
