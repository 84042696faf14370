"""What a training shows: metrics, baselines, predictions, the card and the report."""
