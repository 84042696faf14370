"""Learning: configuration, the rows of each part, the base, examples, the members and their mixture."""
