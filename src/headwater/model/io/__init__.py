"""Model folders on disk: Hugging Face's format, its names for the weights, and names on its hub."""
