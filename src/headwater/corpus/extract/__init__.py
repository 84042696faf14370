"""From raw pages to their main text."""
