"""Verification of the zero-shot protocols: each is computed again with transformers, example by example."""
