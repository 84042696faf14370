"""Packed tokens: how a corpus becomes a stream of ids (`pack`) and how training reads it (`sampler`)."""
