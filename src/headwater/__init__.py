"""Headwater: GPT-1 and GPT-2, end to end."""
