"""What a trained model does with text: score it (`scorer`) or continue it (`engine`, `sampling`)."""
