headwater pretrain recipes/gpt1.toml --tokens tokens --out gpt1-run --dry-run
headwater pretrain recipes/gpt1-nano.toml --tokens tokens --out gpt1-nano
headwater pretrain recipes/lstm-nano.toml --tokens tokens --out lstm-nano
