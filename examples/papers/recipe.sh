headwater pretrain gpt1 --tokens tokens --out gpt1-run --dry-run
headwater pretrain gpt1-nano --tokens tokens --out gpt1-nano
headwater pretrain lstm-nano --tokens tokens --out lstm-nano
