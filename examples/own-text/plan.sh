headwater pretrain recipes/gpt2-micro.toml --tokens tokens --out run --set epochs=8 --dry-run
