"""The twelve sets that GPT-1 was fine-tuned on: their files, their numbers, and one table of all."""
