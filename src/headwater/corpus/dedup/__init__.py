"""Compare documents with each other: exact and near duplicates, and overlap with evaluation sets."""
