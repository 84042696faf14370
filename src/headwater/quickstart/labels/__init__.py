"""Make labelled data from a corpus."""
