"""Fine-tuning: GPT-1's whole method, on the paper's tasks and on a table that somebody brings."""
