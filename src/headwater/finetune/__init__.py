"""Fine-tuning: GPT-1's method, for the paper's tasks and for users' own tables."""
