"""What is said about a fitted model: metrics, analyses, explanations and the report."""
