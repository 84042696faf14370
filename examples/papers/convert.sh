headwater convert downloads/gpt-2/124M gpt2-small
headwater convert downloads/finetune-transformer-lm/model gpt1
