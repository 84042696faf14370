"""The fine-tuned model: the four inputs, batches, the heads, TF-IDF, the mixture, its folder."""
