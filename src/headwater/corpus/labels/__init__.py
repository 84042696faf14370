"""Labelled data made from a corpus."""
