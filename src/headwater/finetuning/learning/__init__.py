"""Training: configuration, what is prepared once for every use, the loop, the search of the learning rate."""
