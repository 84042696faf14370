"""Published labelled sets and benchmarks: where their files are, their rows, and the papers' numbers."""
