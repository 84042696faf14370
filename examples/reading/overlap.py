"""How much of a text was copied? The share of its runs of eight words that the training text has."""

import re


def grams(text: str) -> list[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [tuple(words[i : i + 8]) for i in range(len(words) - 7)]


training = """Four score and seven years ago our fathers brought forth upon this continent, a new
nation, conceived in Liberty, and dedicated to the proposition that all men are created equal. Now
we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so
dedicated, can long endure."""
texts = {
    "recited": "Now we are engaged in a great civil war, testing whether that nation, or another, can last.",
    "retold": "Eighty-seven years ago our fathers made a nation here, free, and sure that all are equal.",
}
seen = set(grams(training))
for name, text in texts.items():
    found = [gram in seen for gram in grams(text)]
    print(f"{name}: {sum(found)} of {len(found)} 8-grams are in the training text")
