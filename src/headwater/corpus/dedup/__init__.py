"""What needs to see all documents: exact and near duplicates, and overlap with evaluation sets."""
