"""Pre-training: objectives, packed tokens, the run, and what it will cost before it is spent."""
