"""A pseudo-random order of documents that depends only on a seed and their names."""

from __future__ import annotations

import hashlib


def rank(seed: int, *parts: str) -> int:
    """Return a uniform 64-bit hash of (seed, parts)."""
    text = "\x00".join((str(seed), *parts))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
