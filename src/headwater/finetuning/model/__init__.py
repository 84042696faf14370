"""The fine-tuned model: the four inputs, batches, the head, features of a frozen base, its folder."""
