"""The results of a training: metrics, baselines, predictions, the card and the report."""
