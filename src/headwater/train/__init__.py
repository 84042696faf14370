"""Training: one loop for pre-training and fine-tuning; it knows neither what is learned nor from which text."""
